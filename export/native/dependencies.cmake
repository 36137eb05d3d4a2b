# With -DKT_FETCH=ON: SentencePiece and nlohmann's JSON header from their sources, for systems that
# have no packages of them, such as Android. Git and a network are needed once; without, give
# -DFETCHCONTENT_SOURCE_DIR_SENTENCEPIECE=FOLDER and -DFETCHCONTENT_SOURCE_DIR_JSON=FOLDER.
include(FetchContent)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_POLICY_VERSION_MINIMUM 3.5)  # SentencePiece's files are older than CMake 4 takes
set(SPM_ENABLE_SHARED OFF CACHE BOOL "" FORCE)
set(SPM_ENABLE_TCMALLOC OFF CACHE BOOL "" FORCE)

# SOURCE_SUBDIR names no folder: FetchContent adds no targets by itself, which would all be built.
FetchContent_Declare(sentencepiece
  GIT_REPOSITORY https://github.com/google/sentencepiece.git
  GIT_TAG 17d7580d6407802f85855d2cc9190634e2c95624  # v0.2.0
  SOURCE_SUBDIR none)
FetchContent_Declare(json
  URL https://github.com/nlohmann/json/releases/download/v3.11.3/json.tar.xz
  URL_HASH SHA256=d6c65aca6b1ed68e7a182f4757257b107ae403032760ed6ef121c9d55e81757d
  SOURCE_SUBDIR none)
FetchContent_MakeAvailable(sentencepiece json)
add_subdirectory(${sentencepiece_SOURCE_DIR} ${sentencepiece_BINARY_DIR} EXCLUDE_FROM_ALL)

set(SENTENCEPIECE_LIBRARY sentencepiece-static)
set(sentencepiece_processor_h_FOLDER ${sentencepiece_SOURCE_DIR}/src)
set(nlohmann_json_hpp_FOLDER ${json_SOURCE_DIR}/include)
