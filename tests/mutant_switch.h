// mutants.py includes this first into the sources that it mutates. All mistakes are compiled at
// once, and each is a choice at run time.
#pragma once

extern "C" {
extern int mutant_chosen;            // 0: none
extern unsigned char* mutants_seen;  // by number: has the mistake's place been run?
}

inline bool is_mutant(int number) {
  if (!mutants_seen[number]) mutants_seen[number] = 1;
  return number == mutant_chosen;
}
