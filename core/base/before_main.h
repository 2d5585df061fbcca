// Lets a source file register itself before main: "I have this kernel", "I am this backend".
//
// A program's global tensors and modules compute before main, too, and C++ does not define which
// file's initialisers run first. Registrations therefore run as constructors with a priority before
// all ordinary initialisers. REQUIRES: the statements use only objects that need no initialiser of
// their own: constinit variables and static variables of functions.
#pragma once

#define BEFORE_MAIN(name, ...)                                                \
  [[gnu::constructor(200)]] static void name##_before_main() { __VA_ARGS__; } \
  static_assert(true, "a semicolon follows")
