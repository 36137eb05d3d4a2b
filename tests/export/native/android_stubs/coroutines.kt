@file:Suppress("UNUSED_PARAMETER", "unused")

package kotlinx.coroutines

interface CoroutineScope

interface Job {
    fun cancel()
}

open class CoroutineDispatcher

fun java.util.concurrent.ExecutorService.asCoroutineDispatcher(): CoroutineDispatcher = TODO()

fun CoroutineScope.launch(
    context: CoroutineDispatcher = TODO(),
    block: suspend CoroutineScope.() -> Unit
): Job = TODO()
