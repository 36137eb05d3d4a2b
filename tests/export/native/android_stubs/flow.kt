@file:Suppress("UNUSED_PARAMETER", "unused")

package kotlinx.coroutines.flow

interface StateFlow<T> {
    val value: T
    suspend fun collect(collector: suspend (T) -> Unit): Nothing
}

interface MutableStateFlow<T> : StateFlow<T> {
    override var value: T
}

fun <T> MutableStateFlow(value: T): MutableStateFlow<T> = TODO()
