// swift-tools-version:5.5
// Not built here: no Swift compiler was to be had. clang accepts the module map (swift/README.md).
import PackageDescription

let package = Package(
    name: "KerasTransformer",
    products: [.library(name: "KerasTransformer", targets: ["KerasTransformer"])],
    targets: [
        .systemLibrary(name: "CKerasTransformer", path: "include"),
        .target(
            name: "KerasTransformer",
            dependencies: ["CKerasTransformer"],
            path: "swift",
            exclude: ["README.md"]
        ),
    ]
)
