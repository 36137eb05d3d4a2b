import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import kerastransformer.Translator;

/**
 * Lines FOLDER (translate | stream | n-best | text | generate | classify) [WEIGHT_CACHE] < lines: an
 * answer a line, "a|b" of several.
 */
public final class Lines {
  public static void main(String[] arguments) throws Exception {
    final PrintStream out = new PrintStream(System.out, false, "UTF-8");
    final String all = new String(System.in.readAllBytes(), StandardCharsets.UTF_8);
    final String cache = arguments.length > 2 ? arguments[2] : null;
    final Translator translator = new Translator(arguments[0], 1, cache);
    for (String line : all.split("\n", -1)) {
      out.print(String.join("|", answers(translator, arguments[1], line)) + "\n");
    }
    if (translator.kind().equals("translate")) {
      check(translator, out);
    }
    out.flush();
  }

  private static List<String> answers(Translator translator, String how, String line) {
    final List<String> found = new ArrayList<>();
    if (how.equals("stream")) {
      translator.stream(line, found::add);
    } else if (how.equals("n-best")) {
      for (Translator.Translation each : translator.nBest(line, 0)) {
        found.add(each.text);
        found.add(each.ids.length + (each.isCut ? " cut " : " ") + (each.score < 0));
      }
    } else if (how.equals("classify")) {
      final Translator.Classes classes = translator.classify(line);
      for (float[] row : classes.probabilities) {
        found.add(String.join(",", classes.labels).replace("\n", " ") + Arrays.toString(row));
      }
      found.add(translator.kind() + " " + classes.isByToken);
    } else if (how.equals("generate")) {
      found.add(translator.kind() + " " + translator.generate(line));
    } else if (how.equals("text")) {
      final String text = line.replace("<br>", "\r\n");
      found.add(translator.translateText(text, "de").replace("\r\n", "<br>"));
    } else {
      found.add(translator.translate(line));
    }
    return found;
  }

  /** Errors, a closed translator, an exception within a stream: a line each. */
  private static void check(Translator translator, PrintStream out) {
    final Translator.Piece thrower =
        piece -> {
          throw new ArithmeticException("in a stream");
        };
    final Translator.Piece closer =
        piece -> {
          translator.close();
          return true;
        };
    final String surrogate = translator.translate("\ud800 a");
    final String wrongBytes = translator.translate("\ufffd\ufffd\ufffd a");
    final Runnable[] wrong = {
      () -> new Translator("no\ud83d\ude00where"),
      () -> new Translator("no\0where"),
      () -> new Translator("elsewhere", 1, "no\0where"),
      () -> translator.translate("a ".repeat(600)),
      () -> translator.translate(null),
      () -> translator.translateText("a", "english"),
      () -> translator.translateText("a", "d\0"),
      () -> translator.stream("a b", null),
      () -> translator.stream("a b", thrower),
      () -> translator.stream("a b", closer),
      () -> out.println(surrogate.equals(wrongBytes)),
      translator::close,
      translator::close,
      () -> translator.translate("a"),
    };
    for (Runnable each : wrong) {
      try {
        each.run();
        out.println("well");
      } catch (RuntimeException error) {
        out.println(error.getClass().getName() + ": " + error.getMessage());
      }
    }
  }
}
