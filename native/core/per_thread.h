// per_thread.h: objects of which every thread has its own.
#pragma once

#include <pthread.h>

#include <memory>
#include <new>

namespace spark {

// Made by a thread's first get(), which throws std::bad_alloc where there is no memory for it, and destroyed
// with the thread. A thread_local would end the process there: the C library can neither report that it
// cannot allocate one nor that it cannot note its destructor.
template <typename T>
class PerThread {
 public:
  static T& get() {
    static const pthread_key_t key = make_key();
    void* own = pthread_getspecific(key);
    if (!own) {
      std::unique_ptr<T> made(new T);  // not make_unique, which would fill large arrays with zeros
      if (pthread_setspecific(key, made.get()) != 0) throw std::bad_alloc();
      own = made.release();
    }
    return *static_cast<T*>(own);
  }

 private:
  static pthread_key_t make_key() {
    pthread_key_t key;
    if (pthread_key_create(&key, [](void* own) { delete static_cast<T*>(own); }) != 0) throw std::bad_alloc();
    return key;
  }
};

}  // namespace spark
