package android.content.pm;

/** What is used of Android's class, and no more. */
public class PackageInfo {
  public long lastUpdateTime;
}
