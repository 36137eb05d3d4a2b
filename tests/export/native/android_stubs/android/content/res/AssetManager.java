package android.content.res;

import java.io.IOException;
import java.io.InputStream;

/** What is used of Android's class, and no more. */
public abstract class AssetManager {
  public abstract String[] list(String path) throws IOException;

  public abstract InputStream open(String name) throws IOException;
}
