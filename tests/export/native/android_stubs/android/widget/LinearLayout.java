package android.widget;

/** What is used of Android's class, and no more. */
public class LinearLayout extends android.view.View {
  public LinearLayout(android.content.Context context) {
    super(context);
  }

  public static final int VERTICAL = 1;

  public int getOrientation() {
    return 0;
  }

  public void setOrientation(int orientation) {}

  public void addView(android.view.View view) {}
}
