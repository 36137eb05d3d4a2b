package android.os;

/** What is used of Android's class, and no more. */
public class Bundle {}
