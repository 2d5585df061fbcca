// Texts and their letters, the same in every locale (core/base/text.h).
#pragma once

#include <charconv>
#include <string>

namespace ringgrad {

// Formats as printf does with %.DIGITSf and %.DIGITSg.
inline std::string formatted(double value, std::chars_format format, int digits) {
  char text[400];  // the longest double has 309 digits before its point
  return {text, std::to_chars(text, text + sizeof text, value, format, digits).ptr};
}

// These accept the letters and digits of ASCII alone.
inline bool is_digit(char c) { return c >= '0' && c <= '9'; }
inline bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
inline bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
inline std::string lower_case(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

}  // namespace ringgrad
