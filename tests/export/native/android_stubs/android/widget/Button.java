package android.widget;

/** What is used of Android's class, and no more. */
public class Button extends TextView {
  public Button(android.content.Context context) {
    super(context);
  }
}
