package android.content.pm;

/** What is used of Android's class, and no more. */
public abstract class PackageManager {
  /** A checked exception there. */
  public static class NameNotFoundException extends Exception {}

  public abstract PackageInfo getPackageInfo(String name, int flags) throws NameNotFoundException;
}
