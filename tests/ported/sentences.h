// English of a kind, for the language models to learn from: what a small grammar says, so that how
// well it can be guessed is known.
#pragma once

#include <random>
#include <string>

// "a small red cat sees these dogs ." Article, noun and verb agree in number, whatever stands
// between them. With the line's end each word can be guessed with a perplexity of 4.3 at best.
inline std::string sentence(std::mt19937& random) {
  static const char* const adjectives[] = {"small", "big", "red", "old", "quiet", "wild"};
  static const char* const nouns[] = {"cat", "dog", "bird", "horse", "tree", "girl", "boy", "king"};
  static const char* const verbs[] = {"see", "like", "find", "know", "want", "hear"};
  const auto one_of = [&](const auto& words) { return words[random() % std::size(words)]; };
  const auto nouns_of = [&](bool plural) {
    std::string text = plural ? "these" : "a";
    for (unsigned i = random() % 3; i > 0; --i) text += std::string(" ") + one_of(adjectives);
    return text + " " + one_of(nouns) + (plural ? "s" : "");
  };
  const bool plural = random() % 2 == 1;
  std::string text = nouns_of(plural);
  text += std::string(" ") + one_of(verbs) + (plural ? "" : "s");
  return text + " " + nouns_of(random() % 2 == 1) + " .";
}
