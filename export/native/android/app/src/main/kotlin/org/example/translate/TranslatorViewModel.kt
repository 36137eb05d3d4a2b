// Compiled against stubs only, see README.md.
package org.example.translate

import android.app.Application
import androidx.lifecycle.AndroidViewModel
import androidx.lifecycle.viewModelScope
import java.io.File
import java.io.IOException
import java.util.concurrent.Executors
import kerastransformer.Translator
import kerastransformer.TranslatorFolder
import kotlinx.coroutines.Job
import kotlinx.coroutines.asCoroutineDispatcher
import kotlinx.coroutines.flow.MutableStateFlow
import kotlinx.coroutines.flow.StateFlow
import kotlinx.coroutines.launch

/** Holds the translator for as long as the screen is used, through turns of the phone too. */
class TranslatorViewModel(application: Application) : AndroidViewModel(application) {
    // All that uses the translator runs here, one after the other.
    private val thread = Executors.newSingleThreadExecutor()
    private val dispatcher = thread.asCoroutineDispatcher()
    private val answers = MutableStateFlow("")
    private var latest: Job? = null

    private val translator: Translator by lazy {
        val folder = TranslatorFolder.unpack(application)
        val weights = File(application.cacheDir, "packed-weights") // the system may empty it
        Translator(folder.path, 1, weights.path)
    }
    private var isOpen = false

    val answer: StateFlow<String> = answers

    /** Translates in the background; what waits for its turn is given up for a later text. */
    fun translate(text: String) {
        latest?.cancel()
        latest = viewModelScope.launch(dispatcher) {
            try {
                answers.value = opened().translate(text)
            } catch (error: Translator.Failure) { // such as a text that is too long
                answers.value = error.message.orEmpty()
            } catch (error: IOException) {
                answers.value = error.message.orEmpty()
            }
        }
    }

    private fun opened(): Translator = translator.also { isOpen = true }

    override fun onCleared() {
        thread.execute { if (isOpen) translator.close() }
        thread.shutdown() // once that is done
    }
}
