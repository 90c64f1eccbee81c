/* What ThreadSanitizer does not see of Rust's locks. Linked with --wrap by run.sh.
 *
 * Rust's standard library comes compiled without the sanitizer. The fast paths of its locks are inlined into crates that are
 * compiled with it, the slow paths are not: a lock that is taken after waiting is taken unseen. These wrappers say what
 * the slow paths do, and nothing else: each adds exactly the order that the function promises. */

void __tsan_acquire(void *address);
void __tsan_release(void *address);

/* Up to six arguments in registers, which is more than any of them has. */
#define ARGUMENTS void *a, void *b, void *c, void *d, void *e, void *f
#define PASS a, b, c, d, e, f
#define REAL(name) void *__real_##name(ARGUMENTS)
#define WRAP(name) REAL(name); void *__wrap_##name(ARGUMENTS)

/* run.sh gives each mangled name as a macro; the extra level expands it. */
#define LOCKED(name) LOCKED_(name)
#define LOCKED_(name) \
    WRAP(name) { \
        void *result = __real_##name(PASS); \
        __tsan_acquire(a); \
        return result; \
    }

/* Mutex::lock_contended, RwLock::read_contended, RwLock::write_contended: the lock is held on return. */
LOCKED(MUTEX_LOCK)
LOCKED(RWLOCK_READ)
LOCKED(RWLOCK_WRITE)

/* Once::call: what ran inside came before whatever follows a call. */
#define ONCE(name) ONCE_(name)
#define ONCE_(name) \
    WRAP(name) { \
        void *result = __real_##name(PASS); \
        __tsan_acquire(a); \
        __tsan_release(a); \
        return result; \
    }
ONCE(ONCE_CALL)

/* Condvar::wait(self, mutex): gives the mutex back, and takes it again. */
#define WAITED(name) WAITED_(name)
#define WAITED_(name) \
    WRAP(name) { \
        __tsan_release(b); \
        void *result = __real_##name(PASS); \
        __tsan_acquire(b); \
        return result; \
    }
WAITED(CONDVAR_WAIT)

/* ScopeData::decrement_num_running_threads: the count that `thread::scope` waits for is one of its first words. */
#define LEFT(name) LEFT_(name)
#define LEFT_(name) \
    WRAP(name) { \
        for (int word = 0; word < 3; ++word) __tsan_release((char *)a + 8 * word); \
        return __real_##name(PASS); \
    }
LEFT(SCOPE_LEAVE)
