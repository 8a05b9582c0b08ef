// error.cc: conversion of spark::Error to SparkError.
#include "napi/error.h"

#include <new>
#include <string>

#include "core/error.h"
#include "napi/env.h"

namespace spark::napi {

Napi::Value to_js_error(Napi::Env env, std::exception_ptr failure) {
  std::string code = "ERR_INTERNAL", text = "unknown native failure";
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    code = error.code;
    text = error.what();
  } catch (const std::bad_alloc&) {
    code = "ERR_OUT_OF_MEMORY";
    text = "the machine refused an allocation; free memory or use smaller tensors";
  } catch (const std::exception& error) {
    text = error.what();
  } catch (...) {
  }
  return EnvState::of(env).spark_error.New({Napi::String::New(env, code), Napi::String::New(env, text)});
}

}  // namespace spark::napi
