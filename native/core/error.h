// error.h: the one exception of the native side. `code` becomes SparkError.code in JavaScript.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace spark {

class Error : public std::runtime_error {
 public:
  // `code` is a literal of the ErrorCode union in lib/core/errors.ts.
  Error(const char* code, const std::string& message) : std::runtime_error(message), code(code) {}

  const char* const code;
};

// Error("ERR_SHAPE", message("x has ", n, " elements")).
template <typename... Parts>
std::string message(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

}  // namespace spark
