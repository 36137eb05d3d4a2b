// Compiled against stubs only, see README.md.
package kerastransformer

import android.content.Context
import java.io.File
import java.io.IOException

/** The exported folder that an app ships among its assets, as files: LiteRT maps a file. */
object TranslatorFolder {
    /**
     * Copies it where it is not there yet, whole or not at all, and removes that of an older
     * version of the app. Not to be called on the main thread.
     */
    @Synchronized
    fun unpack(context: Context, assets: String = "translator"): File {
        val installed = context.packageManager.getPackageInfo(context.packageName, 0).lastUpdateTime
        val folder = File(context.noBackupFilesDir, "$assets-$installed")
        if (folder.isDirectory) return folder
        val isOlder = { file: File -> file.name.removePrefix(".").startsWith("$assets-") }
        context.noBackupFilesDir.listFiles().orEmpty().filter(isOlder).forEach { it.deleteRecursively() }
        val made = File(context.noBackupFilesDir, ".$assets-$installed")
        if (!made.mkdirs()) throw IOException("$made must be a new folder")
        for (name in context.assets.list(assets).orEmpty()) {
            context.assets.open("$assets/$name").use { asset ->
                File(made, name).outputStream().use { asset.copyTo(it) }
            }
        }
        if (!made.renameTo(folder)) throw IOException("$made must become $folder")
        return folder
    }
}
