package android.content;

/** What is used of Android's class, and no more. */
public class Context {
  public java.io.File getNoBackupFilesDir() {
    return null;
  }

  public java.io.File getCacheDir() {
    return null;
  }

  public String getPackageName() {
    return null;
  }

  public android.content.pm.PackageManager getPackageManager() {
    return null;
  }

  public android.content.res.AssetManager getAssets() {
    return null;
  }
}
