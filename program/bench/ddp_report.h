// Shows the results of `ringgrad bench ddp`: in 80 columns, and as a page.
#pragma once

#include <filesystem>

#include <nlohmann/json_fwd.hpp>

namespace ringgrad::program {

// `document`: as explain_rounds() and predict_rows() have made it, and with "prediction"
// predict_clusters().
void print_ddp(const nlohmann::json& document);

// One HTML file. Atomic. Throws IoError.
void write_ddp_page(const nlohmann::json& document, const std::filesystem::path& file);

}  // namespace ringgrad::program
