package android.app;

/** What is used of Android's class, and no more. */
public class Application extends android.content.Context {}
