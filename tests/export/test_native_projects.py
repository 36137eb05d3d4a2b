"""The Android project and the Swift package over the native core: what can be known without them.

No Android SDK and no Swift compiler is here. What is: clang, CMake, and where it is installed
Debian's Kotlin compiler, over stubs in native/android_stubs.
"""

import pathlib
import re
import shutil
import xml.etree.ElementTree

import pytest
from native_core import NATIVE, NEEDED, litert, run

ANDROID, SWIFT = NATIVE / "android", NATIVE / "swift"
STUBS = pathlib.Path(__file__).parent / "native" / "android_stubs"
HEADER = NATIVE / "include" / "keras_transformer.h"


def text_of(*parts):
    return NATIVE.joinpath(*parts).read_text(encoding="utf-8")


def numbers(pattern, *texts):
    """What a group of a pattern finds in each text: one value a text."""
    found = [set(re.findall(pattern, text)) for text in texts]
    assert all(len(each) == 1 for each in found), (pattern, found)
    return set().union(*found)


# --- Said in the first lines, and said alike -----------------------------------------------


def test_the_first_lines_say_what_was_not_built():
    unbuilt = [*ANDROID.rglob("*.kts"), NATIVE / "Package.swift", *SWIFT.iterdir()]
    for path in [*unbuilt, ANDROID / "README.md"]:
        first = "\n".join(path.read_text(encoding="utf-8").splitlines()[:3])
        assert "Not built here" in first, path
    for path in ANDROID.rglob("*.kt"):
        assert path.read_text(encoding="utf-8").startswith("// Compiled against stubs only"), path


def test_versions_are_said_alike():
    library, app = (
        text_of("android", "translator", "build.gradle.kts"),
        text_of("android", "app", "build.gradle.kts"),
    )
    readme, root = text_of("android", "README.md"), text_of("android", "build.gradle.kts")
    litert_version = r"(?:litert:litert:|ai-edge-litert==)(\d+\.\d+\.\d+)"
    assert len(numbers(litert_version, library, readme, text_of("README.md"))) == 1
    assert len(numbers(r"minSdk`? =? ?(\d+)", library, app, readme)) == 1
    assert len(numbers(r"compileSdk`? =? ?(\d+)", library, app, readme)) == 1
    assert numbers(r"abiFilters \+= (.*)}", library, app) == {'listOf("arm64-v8a", "x86_64") '}
    (ndk,) = numbers(r'ndkVersion = "(.*)"', library)
    (cmake,) = numbers(r'version = "(3.*)"', library)
    plugins = set(re.findall(r'version "(.*)" apply', root))
    fetched = set(re.findall(r"# v([\d.]+)|/v([\d.]+)/", text_of("dependencies.cmake")))
    for version in (ndk, cmake, *plugins, *("".join(each) for each in fetched)):
        assert version in readme
    (version,) = numbers(r"VERSION (\d+\.\d+\.\d+) ", text_of("CMakeLists.txt"))
    assert numbers(r'versionName = "(.*)"', app) == {version}


def test_xml_is_well_formed():
    (found, manifest) = sorted(ANDROID.rglob("*.xml"))
    for path in (found, manifest):
        xml.etree.ElementTree.parse(path)
    names = [each.get("{http://schemas.android.com/apk/res/android}name")
             for each in xml.etree.ElementTree.parse(found).iter("activity")]  # fmt: skip
    assert names == [".MainActivity"] and "class MainActivity" in (
        next(ANDROID.rglob("MainActivity.kt")).read_text()
    )


def test_paths_of_the_gradle_project():
    folder = ANDROID / "translator"
    for path in re.findall(r'"((?:\.\./)+[^"]+)"', text_of("android/translator/build.gradle.kts")):
        assert (folder / path).exists(), path
    assert (folder / "consumer-rules.pro").exists()
    listed = {*re.findall(r"src/\w+\.cc", text_of("CMakeLists.txt"))}
    assert sorted(listed) == sorted(f"src/{path.name}" for path in (NATIVE / "src").glob("*.cc"))


def test_names_that_the_native_library_looks_up():
    """Java's native methods are those of jni.cc, and what jni.cc finds by name is kept."""
    java, jni = text_of("jvm", "kerastransformer", "Translator.java"), text_of("jvm", "jni.cc")
    natives = re.findall(r"static native \S+ (\w+)\(", java)
    assert sorted(natives) == sorted(re.findall(r"Java_kerastransformer_Translator_(\w+)\(", jni))
    for name in re.findall(r'method\(env, owner, "(\w+)"', jni):
        assert re.search(rf"private static \w+ {name}\(", java), name
    rules = text_of("android", "translator", "consumer-rules.pro")
    assert re.findall(r"-keep class (\S+)", rules) == [
        "kerastransformer.Translator",
        "kerastransformer.Translator$*",
    ]


# --- Compiled ------------------------------------------------------------------------------


MODULES = {
    "m": '@import CKerasTransformer;\nint main(void) { return kt_open("a", 1) != 0; }\n',
    "c": '#include "keras_transformer.h"\nint main(void) { kt_close(0); return 0; }\n',
    "cc": '#include "keras_transformer.h"\nint main() { kt_close(nullptr); }\n',
}


@pytest.mark.parametrize("language", MODULES)
def test_clang_takes_the_header_as_a_module(language, tmp_path):
    if not shutil.which("clang"):
        pytest.skip(f"clang is not installed: {NEEDED}")
    source = tmp_path / f"a.{language}"
    source.write_text(MODULES[language])
    command = ["clang", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-pedantic", "-fmodules"]
    command += [f"-fmodules-cache-path={tmp_path}", "-Rmodule-import", "-I", HEADER.parent]
    done = run(*command, source)
    assert done.returncode == 0 and "error" not in done.stderr, done.stderr
    assert "importing module 'CKerasTransformer'" in done.stderr or language == "m"


def test_the_swift_class_calls_what_the_header_declares():
    swift, header = text_of("swift", "Translator.swift"), HEADER.read_text(encoding="utf-8")
    called = set(re.findall(r"\b(kt_\w+)\(", swift))
    assert called <= set(re.findall(r"\b(kt_\w+)\(", header)) and len(called) > 7
    fields = set(re.findall(r"item\.(\w+)", swift))
    assert fields == {"text", "text_size", "ids", "id_count", "score", "is_cut"}
    assert all(re.search(rf"\b{field};", header) for field in fields)
    assert swift.count("{") == swift.count("}") and swift.count("(") == swift.count(")")


@pytest.mark.slow
def test_kotlin_compiles_against_stubs(tmp_path):
    if not shutil.which("kotlinc"):
        pytest.skip("kotlinc is not installed (Debian's package kotlin)")
    sources = [*ANDROID.rglob("*.kt"), *STUBS.glob("*.kt"), NATIVE / "jvm", STUBS]
    done = run("kotlinc", "-Werror", "-d", tmp_path, *sources)
    assert done.returncode == 0, done.stderr[-3000:]
    assert list(tmp_path.rglob("TranslatorViewModel.class"))


@pytest.mark.slow
def test_cmake_takes_androids_variables(tmp_path):
    """As Gradle calls it, with this machine's compiler and stand-ins for what is fetched."""
    if not shutil.which("cmake"):
        pytest.skip(f"CMake is not installed: {NEEDED}")
    pieces, json, libraries = (tmp_path / name for name in ("pieces", "json", "jni/x86_64"))
    for folder in (pieces, json, libraries):
        folder.mkdir(parents=True)
    (pieces / "CMakeLists.txt").write_text("add_library(sentencepiece-static INTERFACE)\n")
    (libraries / "libLiteRt.so").symlink_to(litert())
    arguments = re.findall(
        r'"-D(?!ANDROID_STL)(\w+=\w+)",', text_of("android/translator/build.gradle.kts")
    )
    assert arguments == ["KT_FETCH=ON", "KT_JNI=ON", "KT_TOOL=OFF"]
    arguments += ["ANDROID=ON", "ANDROID_ABI=x86_64", f"LITERT_FOLDER={libraries.parent}"]
    arguments += [f"FETCHCONTENT_SOURCE_DIR_SENTENCEPIECE={pieces}"]
    arguments += [f"FETCHCONTENT_SOURCE_DIR_JSON={json}"]
    options = [f"-D{argument}" for argument in arguments]
    done = run("cmake", "-S", NATIVE, "-B", tmp_path / "built", *options)
    assert done.returncode == 0, done.stderr
    targets = run("cmake", "--build", tmp_path / "built", "--target", "help").stdout
    assert "keras_transformer_jni" in targets and "kt-translate" not in targets
    (libraries / "libLiteRt.so").unlink()
    done = run("cmake", "-S", NATIVE, "-B", tmp_path / "built", *options)
    assert done.returncode and "LITERT_LIBRARY must be the path of libLiteRt.so" in done.stderr
