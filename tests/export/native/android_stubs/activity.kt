@file:Suppress("unused")

package androidx.activity

open class ComponentActivity : android.app.Activity()

inline fun <reified M : androidx.lifecycle.AndroidViewModel> ComponentActivity.viewModels(): Lazy<M> = TODO()
