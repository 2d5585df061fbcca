// einsum of two operands: a product of batches of matrices between permutations and reshapes.
#include <algorithm>
#include <map>
#include <string>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/autograd/ops/common.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/base/letters.h"

namespace ringgrad {
namespace {

// Returns x, whose dimensions are `letters`, with the dimensions `wanted` in that order. The others
// are summed.
Tensor arranged(Tensor x, std::string letters, const std::string& wanted) {
  Dims summed;
  for (size_t d = 0; d < letters.size(); ++d)
    if (wanted.find(letters[d]) == std::string::npos) summed.push_back(static_cast<int>(d));
  if (!summed.empty()) x = sum(x, summed);
  std::erase_if(letters, [&](char letter) { return wanted.find(letter) == std::string::npos; });
  std::vector<int> order;
  for (char letter : wanted) order.push_back(static_cast<int>(letters.find(letter)));
  return permute(x, order);
}

}  // namespace

Tensor einsum(const char* equation_, const Tensor& a, const Tensor& b) {
  CHECK(equation_ != nullptr, "einsum: the equation is null, expected one as ij,jk->ik");
  std::string equation = equation_;
  std::erase(equation, ' ');
  const size_t comma = equation.find(',');
  const size_t arrow = equation.find("->");
  CHECK(comma != std::string::npos, "einsum: \"", equation_,
        "\" has no comma, expected two operands, as in ij,jk->ik");
  const std::string of_a = equation.substr(0, comma);
  const std::string of_b = equation.substr(comma + 1, arrow - comma - 1);
  std::map<char, int64_t> sizes;
  const auto read = [&](const std::string& letters, const Tensor& x) {
    check_defined("einsum", x);
    CHECK_AS(ShapeError, static_cast<int>(letters.size()) == x.dim(), "einsum: \"", letters,
             "\" for shape ", x.shape(), ", expected a letter for each dimension");
    for (int d = 0; d < x.dim(); ++d) {
      CHECK(is_letter(letters[d]) && letters.find(letters[d]) == static_cast<size_t>(d),
            "einsum: \"", letters, "\" has '", letters[d],
            "', expected letters, each once in an operand");
      const auto [entry, is_new] = sizes.emplace(letters[d], x.size(d));
      CHECK_AS(ShapeError, is_new || entry->second == x.size(d), "einsum: '", letters[d],
               "' has the sizes ", entry->second, " and ", x.size(d), ", expected one");
    }
  };
  read(of_a, a);
  read(of_b, b);
  const auto in = [](const std::string& letters, char letter) {
    return letters.find(letter) != std::string::npos;
  };
  std::string result;
  std::string batch;
  std::string rows;
  std::string columns;
  std::string inner;
  if (arrow != std::string::npos) result = equation.substr(arrow + 2);
  for (const auto& [letter, size] : sizes) {
    if (arrow == std::string::npos && in(of_a, letter) != in(of_b, letter)) result += letter;
    const bool both = in(of_a, letter) && in(of_b, letter);
    if (!in(result, letter) && !both) continue;
    (both ? in(result, letter) ? batch : inner : in(of_a, letter) ? rows : columns) += letter;
  }
  for (char letter : result)
    CHECK(sizes.contains(letter) && std::count(result.begin(), result.end(), letter) == 1,
          "einsum: the result \"", result, "\" has '", letter,
          "', expected letters of the operands, each once");
  Shape all;
  const auto total = [&](const std::string& letters) {
    Shape shape;  // whose product may be too large where another size is 0
    for (char letter : letters) shape.push_back(sizes[letter]);
    return count_elements("einsum", shape);
  };
  const Shape left = {total(batch), total(rows), total(inner)};
  const Shape right = {total(batch), total(inner), total(columns)};
  const Tensor product = matmul(reshape(arranged(a, of_a, batch + rows + inner), left),
                                reshape(arranged(b, of_b, batch + inner + columns), right));
  for (char letter : batch + rows + columns) all.push_back(sizes[letter]);
  return arranged(reshape(product, all), batch + rows + columns, result);
}

}  // namespace ringgrad
