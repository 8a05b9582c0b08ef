// library.h: a shared library opened at run time, or the reason why it could not be.
#pragma once

#include <dlfcn.h>

#include <initializer_list>
#include <string>

namespace spark {

class Library {
 public:
  // Opens the first of `names` that loads. `visibility`: RTLD_GLOBAL where what it loads needs its symbols.
  explicit Library(std::initializer_list<const char*> names, int visibility = RTLD_LOCAL) {
    for (const char* name : names) {
      handle_ = dlopen(name, RTLD_NOW | visibility);
      if (handle_) {
        name_ = name;
        reason_.clear();
        return;
      }
      const char* why = dlerror();
      reason_ += (reason_.empty() ? "" : "; ") + std::string(why ? why : name);
    }
  }

  bool ok() const { return handle_ != nullptr; }
  const std::string& name() const { return name_; }
  const std::string& reason() const { return reason_; }

  // Points `function` at `symbol`, or at nullptr when the library lacks it.
  template <typename Function>
  bool bind(Function& function, const char* symbol) const {
    function = handle_ ? reinterpret_cast<Function>(dlsym(handle_, symbol)) : nullptr;
    return function != nullptr;
  }

 private:
  void* handle_ = nullptr;  // never dlclosed: a driver library does not survive unloading
  std::string name_, reason_;
};

}  // namespace spark
