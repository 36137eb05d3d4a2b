package kerastransformer;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.locks.ReentrantReadWriteLock;

/**
 * Translates with a folder that {@code keras-transformer export --to litert} wrote, or continues
 * prompts, or classifies: what its model is made for, see {@link #kind}. A method of another kind
 * throws a {@link Failure}.
 *
 * <p>Any thread may call it, several at once too; calls take turns while the model computes.
 * {@link #close} waits for calls to return. It needs {@code libkeras_transformer_jni},
 * {@code libkeras_transformer} and {@code libLiteRt} where the virtual machine looks for libraries.
 */
public final class Translator implements AutoCloseable {
  static {
    System.loadLibrary("keras_transformer_jni");
  }

  /** What was wrong: the rule, and what was received. */
  public static final class Failure extends RuntimeException {
    private static final long serialVersionUID = 1;

    public Failure(String message) {
      super(message);
    }
  }

  /** One answer to one text. */
  public static final class Translation {
    public final String text;
    /** Its tokens, EOS at the end unless it was cut. */
    public final int[] ids;
    /** What the search ranks by. */
    public final float score;
    /** Whether the limit of the length has cut it. */
    public final boolean isCut;

    Translation(byte[] text, int[] ids, float score, boolean isCut) {
      this.text = text(text);
      this.ids = ids;
      this.score = score;
      this.isCut = isCut;
    }
  }

  /** The probability of each class for a text, or for each of its tokens. */
  public static final class Classes {
    /** A row of the text, or one of each token; in it a number of each class. */
    public final float[][] probabilities;
    /** The name of each class; empty where the folder has none. */
    public final List<String> labels;
    /** Whether there is a row of each token. */
    public final boolean isByToken;

    Classes(float[][] probabilities, List<String> labels, boolean isByToken) {
      this.probabilities = probabilities;
      this.labels = Collections.unmodifiableList(labels);
      this.isByToken = isByToken;
    }
  }

  /** Takes the pieces of a text that grows. */
  public interface Piece {
    /** Returns whether to go on. */
    boolean take(String piece);
  }

  private final ReentrantReadWriteLock lock = new ReentrantReadWriteLock();
  private long handle;

  /**
   * Opens a folder, with one thread, which is fastest for one sentence at a time.
   *
   * @throws Failure if a file is missing or damaged, or does not belong to the others
   */
  public Translator(String folder) {
    this(folder, 1);
  }

  /** Opens a folder with 1 to 256 threads. */
  public Translator(String folder, int threads) {
    this(folder, threads, null);
  }

  /**
   * Opens a folder with packed weights in a file, which the first start writes into {@code
   * weightCache} and later ones map: the system can drop them. On Android {@code getCacheDir()} has
   * room for it.
   *
   * @param weightCache a folder, made if missing, or null for weights that are packed into memory
   */
  public Translator(String folder, int threads, String weightCache) {
    final byte[] cache = weightCache == null ? null : terminated(weightCache, "weightCache");
    handle = open(terminated(folder, "folder"), threads, cache);
  }

  /** The version of the native library. */
  public static native String version();

  /**
   * The translation.
   *
   * @throws Failure if the text has more tokens than the folder allows
   * @throws IllegalStateException if the translator is closed
   */
  public String translate(String text) {
    final byte[] bytes = bytes(text);
    enter();
    try {
      return text(translate(handle, bytes));
    } finally {
      lock.readLock().unlock();
    }
  }

  /**
   * What the model of the folder does: "translate", "generate" or "classify".
   *
   * @throws IllegalStateException if the translator is closed
   */
  public String kind() {
    enter();
    try {
      return text(kind(handle));
    } finally {
      lock.readLock().unlock();
    }
  }

  /**
   * The text that begins with the prompt, which may be empty, and that a language model goes on
   * with.
   *
   * @throws Failure if the prompt has more tokens than the folder allows
   * @throws IllegalStateException if the translator is closed
   */
  public String generate(String prompt) {
    final byte[] bytes = bytes(prompt);
    enter();
    try {
      return text(generate(handle, bytes));
    } finally {
      lock.readLock().unlock();
    }
  }

  /**
   * The classes of a text, or of its tokens.
   *
   * @throws Failure if the text has more tokens than the folder allows, or none
   * @throws IllegalStateException if the translator is closed
   */
  public Classes classify(String text) {
    final byte[] bytes = bytes(text);
    enter();
    try {
      return classify(handle, bytes);
    } finally {
      lock.readLock().unlock();
    }
  }

  /**
   * The translation of a text of several sentences, its line breaks and spaces kept. No text is too
   * long. It needs a library that was built with ICU.
   *
   * @param language of the text, such as "de", whose abbreviations end no sentence; "" for none
   * @throws Failure if {@code language} is no such tag
   */
  public String translateText(String text, String language) {
    final byte[] bytes = bytes(text);
    final byte[] tag = terminated(language, "language");
    enter();
    try {
      return text(translateText(handle, bytes, tag));
    } finally {
      lock.readLock().unlock();
    }
  }

  /**
   * The best translations, or continuations with their prompt, fewer where the search finds fewer.
   *
   * @param count how many, or 0 for all that the file gives
   * @throws Failure as {@link #translate}, or if the file gives no scores or not as many
   */
  public List<Translation> nBest(String text, int count) {
    final byte[] bytes = bytes(text);
    final List<Translation> found = new ArrayList<>();
    enter();
    try {
      nBest(handle, bytes, count, found);
    } finally {
      lock.readLock().unlock();
    }
    return Collections.unmodifiableList(found);
  }

  /**
   * Gives the translation, or a prompt and its continuation, in pieces, each as soon as nothing can change it. What {@code piece}
   * throws ends the stream and is thrown here.
   *
   * @throws Failure as {@link #translate}, or if the file cannot decode step by step
   */
  public void stream(String text, Piece piece) {
    if (piece == null) {
      throw new NullPointerException("`piece` must not be null");
    }
    final byte[] bytes = bytes(text);
    enter();
    try {
      stream(handle, bytes, piece);
    } finally {
      lock.readLock().unlock();
    }
  }

  /** Frees the memory. Later calls are errors, but for this one. */
  @Override
  public void close() {
    if (lock.getReadHoldCount() > 0) {
      throw new IllegalStateException("a translator must not be closed within its own stream");
    }
    lock.writeLock().lock();
    try {
      close(handle);
      handle = 0;
    } finally {
      lock.writeLock().unlock();
    }
  }

  private void enter() {
    lock.readLock().lock();
    if (handle == 0) {
      lock.readLock().unlock();
      throw new IllegalStateException("a translator must be open. Received: a closed one");
    }
  }

  // --- Texts cross as UTF-8: what JNI calls UTF spells emoji and NUL in another way. ------------

  private static byte[] bytes(String text) {
    // A surrogate of its own, which UTF-8 cannot hold, counts as three wrong bytes, as in Python.
    return text.replaceAll("\\p{Cs}", "\ufffd\ufffd\ufffd").getBytes(StandardCharsets.UTF_8);
  }

  private static byte[] terminated(String text, String name) {
    if (text.indexOf('\0') >= 0) {
      throw new Failure("`" + name + "` must hold no NUL. Received: one");
    }
    return bytes(text + "\0");
  }

  private static String text(byte[] bytes) {
    return new String(bytes, StandardCharsets.UTF_8);
  }

  // --- Called from jni.cc ----------------------------------------------------------------------

  private static boolean give(Piece piece, byte[] bytes) {
    return piece.take(text(bytes));
  }

  private static void add(
      List<Translation> found, byte[] text, int[] ids, float score, boolean isCut) {
    found.add(new Translation(text, ids, score, isCut));
  }

  private static Classes classes(float[] numbers, int rows, byte[][] names, boolean isByToken) {
    final float[][] probabilities = new float[rows][];
    final int count = numbers.length / rows;
    for (int row = 0; row < rows; ++row) {
      probabilities[row] = Arrays.copyOfRange(numbers, row * count, (row + 1) * count);
    }
    final List<String> labels = new ArrayList<>();
    for (byte[] name : names) {
      labels.add(text(name));
    }
    return new Classes(probabilities, labels, isByToken);
  }

  private static Failure failure(byte[] message) {
    return new Failure(text(message));
  }

  private static native long open(byte[] folder, int threads, byte[] weightCache);

  private static native void close(long handle);

  private static native byte[] translate(long handle, byte[] text);

  private static native byte[] kind(long handle);

  private static native byte[] generate(long handle, byte[] prompt);

  private static native Classes classify(long handle, byte[] text);
  private static native byte[] translateText(long handle, byte[] text, byte[] language);

  private static native void nBest(long handle, byte[] text, int count, List<Translation> found);

  private static native void stream(long handle, byte[] text, Piece piece);
}
