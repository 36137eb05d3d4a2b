package android.view;

/** What is used of Android's class, and no more. */
public class View {
  /** Called when a view is touched. */
  public interface OnClickListener {
    void onClick(View view);
  }

  public View(android.content.Context context) {}

  public void setOnClickListener(OnClickListener listener) {}

  public boolean getFitsSystemWindows() {
    return false;
  }

  public void setFitsSystemWindows(boolean fits) {}
}
