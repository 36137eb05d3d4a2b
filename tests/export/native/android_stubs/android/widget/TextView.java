package android.widget;

/** What is used of Android's class, and no more. */
public class TextView extends android.view.View {
  public TextView(android.content.Context context) {
    super(context);
  }

  public CharSequence getText() {
    return null;
  }

  public void setText(CharSequence text) {}
}
