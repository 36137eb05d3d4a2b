package android.widget;

/** What is used of Android's class, and no more. */
public class EditText extends TextView {
  public EditText(android.content.Context context) {
    super(context);
  }
}
