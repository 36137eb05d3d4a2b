// Compiled against stubs only, see README.md.
package org.example.translate

import android.os.Bundle
import android.widget.Button
import android.widget.EditText
import android.widget.LinearLayout
import android.widget.TextView
import androidx.activity.ComponentActivity
import androidx.activity.viewModels
import androidx.lifecycle.lifecycleScope
import kotlinx.coroutines.launch

/** A text, a button and its translation. */
class MainActivity : ComponentActivity() {
    private val model: TranslatorViewModel by viewModels()

    override fun onCreate(savedInstanceState: Bundle?) {
        super.onCreate(savedInstanceState)
        val text = EditText(this)
        val button = Button(this)
        val answer = TextView(this)
        button.setText("Translate")
        button.setOnClickListener { model.translate(text.text.toString()) }
        val column = LinearLayout(this)
        column.orientation = LinearLayout.VERTICAL
        column.fitsSystemWindows = true
        for (view in listOf(text, button, answer)) column.addView(view)
        setContentView(column)
        lifecycleScope.launch { model.answer.collect { answer.text = it } }
    }
}
