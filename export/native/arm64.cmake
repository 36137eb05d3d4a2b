# A toolchain for arm64 Linux with Debian's cross compiler: -DCMAKE_TOOLCHAIN_FILE=…/arm64.cmake
# -DARM64_ROOT=FOLDER, which arm64_root.sh has made.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)

set(ARM64_ROOT "" CACHE PATH "What arm64_root.sh has made")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES ARM64_ROOT)
set(CMAKE_FIND_ROOT_PATH ${ARM64_ROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
# Of the libraries that those we link need themselves.
set(CMAKE_EXE_LINKER_FLAGS_INIT "-Wl,-rpath-link,${ARM64_ROOT}/usr/lib/aarch64-linux-gnu")
set(CMAKE_SHARED_LINKER_FLAGS_INIT "${CMAKE_EXE_LINKER_FLAGS_INIT}")
set(LITERT_LIBRARY "${ARM64_ROOT}/opt/site/ai_edge_litert/libLiteRt.so" CACHE FILEPATH "")
