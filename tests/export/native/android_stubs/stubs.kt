// What the example of export/native/android uses of Jetpack and of Kotlin's coroutines: names and
// types, and no more. See test_native_projects.py.
@file:Suppress("UNUSED_PARAMETER", "unused")

package androidx.lifecycle

import android.app.Application
import kotlinx.coroutines.CoroutineScope

open class AndroidViewModel(application: Application) {
    protected open fun onCleared() {}
}

val AndroidViewModel.viewModelScope: CoroutineScope get() = TODO()
val android.app.Activity.lifecycleScope: CoroutineScope get() = TODO()
