// The words behind kt-translate.
#pragma once

struct Options {
  const char *folder = nullptr, *weight_cache = nullptr, *language = "";
  int n_best = 0, threads = 1;  // no `n_best` is 0
  bool streams = false, is_whole = false;
};

// Fails unless they are what kt-translate takes.
Options read_options(int count, char** words);
