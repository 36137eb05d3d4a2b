// Not built here: see ../README.md for what was tried.
//
// The native core and its Java class as an Android library. LiteRT comes from its AAR, which has no
// prefab package for CMake: its libraries are taken out of it before CMake runs. SentencePiece and
// nlohmann's header come from their sources (../../dependencies.cmake).
plugins {
    id("com.android.library")
    id("org.jetbrains.kotlin.android")
}

val litert: Configuration by configurations.creating { isTransitive = false }
val litertFolder = layout.buildDirectory.dir("litert")

dependencies {
    litert("com.google.ai.edge.litert:litert:2.3.0@aar")
}

val extractLitert by tasks.registering(Copy::class) {
    from({ zipTree(litert.singleFile) }) { include("jni/*/libLiteRt.so") }
    into(litertFolder)
}

android {
    namespace = "kerastransformer"
    compileSdk = 34
    ndkVersion = "26.0.10792818" // r26a

    defaultConfig {
        minSdk = 24 // of LiteRT 2.3.0's AAR
        consumerProguardFiles("consumer-rules.pro")
        ndk { abiFilters += listOf("arm64-v8a", "x86_64") }
        externalNativeBuild {
            cmake {
                targets += listOf("keras_transformer", "keras_transformer_jni")
                arguments += listOf(
                    "-DANDROID_STL=c++_shared",
                    "-DKT_FETCH=ON",
                    "-DKT_JNI=ON",
                    "-DKT_TOOL=OFF",
                    "-DLITERT_FOLDER=${litertFolder.get().asFile}/jni"
                )
            }
        }
    }
    externalNativeBuild {
        cmake {
            path = file("../../CMakeLists.txt")
            version = "3.22.1"
        }
    }
    sourceSets["main"].java.srcDir("../../jvm")
    sourceSets["main"].jniLibs.srcDir(litertFolder.map { it.dir("jni") })
    // Gradle also packs what CMake has linked.
    packaging { jniLibs { pickFirsts += "**/libLiteRt.so" } }
    compileOptions {
        sourceCompatibility = JavaVersion.VERSION_1_8
        targetCompatibility = JavaVersion.VERSION_1_8
    }
    kotlinOptions { jvmTarget = "1.8" }
}

tasks.configureEach {
    val needsLitert = name == "preBuild" || name.startsWith("configureCMake") ||
        name.startsWith("buildCMake") || name.endsWith("JniLibFolders")
    if (needsLitert) dependsOn(extractLitert)
}
