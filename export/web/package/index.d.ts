// Needs no types of the DOM: what is asked for is an AbortSignal, a URL, a Response, by their shapes.

export type Bytes = Uint8Array | ArrayBuffer;

/** An `AbortSignal`. */
export interface Signal {
  readonly aborted: boolean;
  readonly reason: any;
  throwIfAborted(): void;
}

/** A `URL`. */
export interface Address {
  readonly href: string;
}

/** A `Response` of `fetch`. */
export interface FetchedFile {
  readonly ok: boolean;
  readonly status: number;
  arrayBuffer(): Promise<ArrayBuffer>;
}

/**
 * Where files come from: the address of their folder (in Node a string without a scheme is a path),
 * their bytes by name, or a function that gives them.
 */
export type Source =
  | string
  | Address
  | ReadonlyMap<string, Bytes>
  | ((name: string, options: { signal?: Signal }) => GivenFile | Promise<GivenFile>);

/** What such a function gives: bytes, a response, or an address. `undefined` if there is no file. */
export type GivenFile = Bytes | FetchedFile | Address | string | undefined;

/** How far a file has come. */
export interface Progress {
  readonly file: string;
  readonly loaded: number;
  /** Bytes in all, where the server tells. */
  readonly total: number | undefined;
}

export interface OpenOptions {
  /**
   * Where the package's `.wasm` files lie; beside the package's own code, unless told. The first
   * translator of a page, worker or process decides, as the runtime is started once.
   */
  assets?: Source;
  onProgress?: (progress: Progress) => void;
  /** Stops loading. */
  signal?: Signal;
}

export interface TranslateOptions {
  /** Stops waiting and what comes after; a run that has begun goes on to its end. */
  signal?: Signal;
}

export interface TextOptions {
  /** A tag of the text's language, such as `"de"`, whose abbreviations end no sentence. */
  language?: string;
}

export interface SplitText {
  readonly sentences: string[];
  /** One more than there are sentences: `gaps[0] + sentences[0] + gaps[1] + …` is the text. */
  readonly gaps: string[];
}

/** `metadata.json` of the folder. */
export interface Metadata {
  readonly signature: string;
  readonly vocab_size: number;
  readonly target_vocab_size: number;
  readonly pad_id: number;
  readonly bos_id: number;
  readonly eos_id: number;
  readonly max_source_length: number;
  readonly lengths: readonly {
    readonly signature: string;
    readonly source_length: number;
    readonly target_length: number;
  }[];
  readonly mode?: string;
  readonly [name: string]: unknown;
}

/** Translates with one exported folder. Calls wait for each other. */
export class Translator {
  private constructor();

  /** Opens a folder, once all its files are what the export wrote. */
  static open(source: Source, options?: OpenOptions): Promise<Translator>;

  readonly metadata: Metadata;
  /** Bytes of the model and its tokenizers. */
  readonly bytes: number;
  /** Bytes that the runtime has taken for all models and tensors; it never gives any back. */
  readonly memoryBytes: number;
  /** How many tokens a sentence may have, EOS included. */
  readonly maxTokens: number;

  /** One sentence -> its translation. */
  translate(text: string, options?: TranslateOptions): Promise<string>;
  /** A text of any length -> its translation, line breaks and spaces between sentences kept. */
  translateText(text: string, options?: TranslateOptions & TextOptions): Promise<string>;
  /** The sentences of a text, each short enough for the model, and what lies between them. */
  splitText(text: string, options?: TextOptions): SplitText;

  /** The ids of one sentence, as `translateIds` takes them. */
  encode(text: string): number[];
  /** Ids of one sentence, EOS at the end -> ids of its translation, without EOS and pads. */
  translateIds(ids: readonly number[] | Int32Array, options?: TranslateOptions): Promise<number[]>;
  /** The text of ids, up to the first EOS. */
  decode(ids: readonly number[] | Int32Array): string;

  /** Frees the model, when the calls before have ended; a second time does nothing. */
  close(): Promise<void>;
}

/** A text with a translation in the place of each sentence. */
export function joinText(gaps: readonly string[], translations: readonly string[]): string;

export type ErrorCode =
  /** A call with something else than is asked for. */
  | 'argument'
  /** A file that is not there, or that the network does not give. */
  | 'missing'
  /** A file that is not what the export wrote. */
  | 'damaged'
  /** Files that are no export, or one that does not work here. */
  | 'folder'
  /** A sentence with more tokens than the model takes. */
  | 'length'
  /** What the browser lacks, or LiteRT.js does not do. */
  | 'runtime'
  /** A translator that was closed. */
  | 'closed';

/** What goes wrong; what a signal stops throws the signal's reason instead. */
export class TranslatorError extends Error {
  constructor(code: ErrorCode, message: string, options?: { cause?: unknown });
  readonly code: ErrorCode;
}
