// The parts of a page as HTML and SVG, which any XML parser reads, too. No scripts, and nothing from elsewhere.
#pragma once

#include "ringgrad/models/program/explain/page.h"

namespace ringgrad::program {

std::string html_table(const Row& header, const std::vector<Row>& rows);
std::string html_chart(const std::vector<Lane>& lanes, double end);
std::string html_document(const std::string& title, const std::string& body);

}  // namespace ringgrad::program
