// Not built here: no Swift compiler was to be had. See README.md.

import CKerasTransformer

/// What was wrong: the rule, and what was received.
public struct TranslatorError: Error, CustomStringConvertible {
    public let description: String

    /// Of this thread's last call that failed.
    static func last() -> TranslatorError { TranslatorError(description: String(cString: kt_error())) }
}

/// One answer to one text.
public struct Translation {
    public let text: String
    /// Its tokens, EOS at the end unless it was cut.
    public let ids: [Int32]
    /// What the search ranks by.
    public let score: Float
    /// Whether the limit of the length has cut it.
    public let isCut: Bool
}

/// Translates with a folder that `keras-transformer export --to litert` wrote.
///
/// Any thread may call it, several at once too; calls take turns while the model computes.
public final class Translator: @unchecked Sendable {
    private let handle: OpaquePointer

    /// Opens a folder. With a `weightCache`, packed weights lie in a file in that folder, which
    /// later starts map; on Linux and Android only.
    public init(folder: String, threads: Int32 = 1, weightCache: String? = nil) throws {
        let opened = weightCache.map { kt_open_cached(folder, threads, $0) } ?? kt_open(folder, threads)
        guard let opened = opened else { throw TranslatorError.last() }
        handle = opened
    }

    deinit { kt_close(handle) }

    public static var version: String { String(cString: kt_version()) }

    public func translate(_ text: String) throws -> String {
        try withBytes(of: text) { bytes, size in
            var count = 0
            guard let answer = kt_translate(handle, bytes, size, &count) else {
                throw TranslatorError.last()
            }
            defer { kt_free(answer) }
            return string(answer, count)
        }
    }

    /// The best translations, fewer where the search finds fewer; all that the file gives for 0.
    public func nBest(_ text: String, count: Int32 = 0) throws -> [Translation] {
        try withBytes(of: text) { bytes, size in
            guard let found = kt_n_best(handle, bytes, size, count) else {
                throw TranslatorError.last()
            }
            defer { kt_free_translations(found) }
            return (0..<found.pointee.count).map { index in
                let item = found.pointee.items[index]
                return Translation(
                    text: string(item.text, item.text_size),
                    ids: Array(UnsafeBufferPointer(start: item.ids, count: item.id_count)),
                    score: item.score,
                    isCut: item.is_cut != 0
                )
            }
        }
    }

    /// Gives the translation in pieces, each as soon as nothing can change it, until `piece`
    /// returns false.
    public func stream(_ text: String, piece: (String) -> Bool) throws {
        try withBytes(of: text) { bytes, size in
            try withoutActuallyEscaping(piece) { piece in
                var taker = piece
                let status = withUnsafeMutablePointer(to: &taker) { context in
                    kt_stream(handle, bytes, size, { context, piece, size in
                        let taker = context!.assumingMemoryBound(to: ((String) -> Bool).self)
                        return taker.pointee(string(piece, size)) ? 0 : 1
                    }, context)
                }
                guard status == 0 else { throw TranslatorError.last() }
            }
        }
    }
}

private func withBytes<Result>(
    of text: String, _ body: (UnsafePointer<CChar>?, Int) throws -> Result
) rethrows -> Result {
    var text = text
    return try text.withUTF8 { bytes in
        let start = UnsafeRawPointer(bytes.baseAddress)
        return try body(start?.assumingMemoryBound(to: CChar.self), bytes.count)
    }
}

private func string(_ bytes: UnsafePointer<CChar>?, _ size: Int) -> String {
    String(decoding: UnsafeRawBufferPointer(start: bytes, count: size), as: UTF8.self)
}
