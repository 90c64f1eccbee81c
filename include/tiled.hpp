/**
 * @file tiled.hpp
 * The C++17 wrapper of tiled.h: header-only, with the same names.
 *
 * - `tiled::engine`, `graph`, `weights`, `plan`, `executor`, `trainer`, `grid` own their handle: they move, they do not
 *   copy, and they free it.
 * - A call that fails throws `tiled::error`, which carries the status and the message. Without exceptions (`-fno-exceptions`,
 *   or TILED_NO_EXCEPTIONS defined) a call returns `tiled::result<T>` instead: test it, then take its `value()`.
 * - Units of one program may differ in that: all names lie in an inline namespace of the mode, `tiled::with_exceptions` or
 *   `tiled::without_exceptions`, which code never has to name. Handles pass from one to the other by `release()`.
 * - `tiled::tensor` describes memory of the caller and owns nothing.
 * - Lambdas are sources, sinks and progress. They run on threads of the library, several at once unless they are made
 *   `serial`; what they throw ends the run and is thrown again by the call.
 */
#ifndef TILED_HPP
#define TILED_HPP

#if (defined(_MSVC_LANG) ? _MSVC_LANG : __cplusplus) < 201703L
#error "tiled.hpp needs C++17 or later: compile with -std=c++17"
#include <no_earlier_standard> // g++ goes on after an #error and would tell of every name that is missing
#endif

#include "tiled.h"

#include <array>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#if !defined(TILED_NO_EXCEPTIONS) && !defined(__cpp_exceptions)
#define TILED_NO_EXCEPTIONS 1
#endif

#ifndef TILED_NO_EXCEPTIONS
#include <exception>
#include <stdexcept>
#endif

// A function of both modes would have two bodies under one name, of which a linker keeps one.
#ifdef TILED_NO_EXCEPTIONS
#define TILED_MODE without_exceptions
#else
#define TILED_MODE with_exceptions
#endif

namespace tiled {
inline namespace TILED_MODE {

/** This thread's last message. */
inline std::string last_error() {
    std::string text(tiled_last_error(nullptr, 0) + 1, '\0');
    text.resize(tiled_last_error(text.data(), text.size()));
    return text;
}

#ifndef TILED_NO_EXCEPTIONS
/** A call that failed. */
class error : public std::runtime_error {
public:
    error(tiled_status status, const std::string &message) : std::runtime_error(message), status_(status) {}

    /** Why. */
    tiled_status status() const noexcept { return status_; }

private:
    tiled_status status_;
};

/** What a call gives: the value itself. A failure is thrown. */
template <class T> using result = T;

namespace detail {
inline void check(tiled_status status) {
    if (status != TILED_STATUS_OK) throw error(status, last_error());
}
template <class T> result<T> done(tiled_status status, T &&value) {
    check(status);
    return std::forward<T>(value);
}
inline void done(tiled_status status) { check(status); }
} // namespace detail

/** The value of a result; with exceptions a result is its value. */
template <class T> T take(T &&value) { return std::forward<T>(value); }
#else
/** What a call gives: a value, or the status and the message of a failure. */
template <class T> class [[nodiscard]] result {
public:
    result(T value) : value_(std::move(value)) {}
    result(tiled_status status, std::string message) : status_(status), message_(std::move(message)) {}

    explicit operator bool() const noexcept { return value_.has_value(); }
    tiled_status status() const noexcept { return status_; }
    const std::string &message() const noexcept { return message_; }
    /** The value; ends the program where there is none. */
    T &value() & { return value_ ? *value_ : (std::abort(), *value_); }
    T &&value() && { return std::move(value()); }

private:
    std::optional<T> value_;
    tiled_status status_ = TILED_STATUS_OK;
    std::string message_;
};

/** What a call without a value gives. */
template <> class [[nodiscard]] result<void> {
public:
    result() = default;
    result(tiled_status status, std::string message) : status_(status), message_(std::move(message)) {}

    explicit operator bool() const noexcept { return status_ == TILED_STATUS_OK; }
    tiled_status status() const noexcept { return status_; }
    const std::string &message() const noexcept { return message_; }
    /** Ends the program where the call failed. */
    void value() const {
        if (status_ != TILED_STATUS_OK) std::abort();
    }

private:
    tiled_status status_ = TILED_STATUS_OK;
    std::string message_;
};

namespace detail {
template <class T> result<std::decay_t<T>> done(tiled_status status, T &&value) {
    if (status != TILED_STATUS_OK) return {status, last_error()};
    return result<std::decay_t<T>>(std::forward<T>(value));
}
inline result<void> done(tiled_status status) {
    if (status != TILED_STATUS_OK) return {status, last_error()};
    return {};
}
} // namespace detail

/** The value of a result; ends the program where the call failed. */
template <class T> T take(result<T> &&value) { return std::move(value).value(); }
inline void take(result<void> &&value) { value.value(); }
#endif

/** The library that runs: its version as `major·2^16 + minor·2^8 + patch` and as text, its build, its handles in use. */
inline uint32_t version() noexcept { return tiled_version(); }
inline std::string version_string() { return tiled_version_string(); }
inline std::string build_info() { return tiled_build_info(); }
inline size_t live_handles() noexcept { return tiled_live_handles(); }
inline std::string status_name(tiled_status status) { return tiled_status_name(status); }

using interval = tiled_interval;
using region = tiled_region;
using window = tiled_window;
using shape = std::array<int64_t, 4>;

namespace detail {

/** The one owner of handles: moves, does not copy, frees once. */
template <class Handle, tiled_status (*Free)(Handle *)> class owner {
public:
    owner() noexcept = default;
    explicit owner(Handle *handle) noexcept : handle_(handle) {}
    owner(owner &&other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    owner &operator=(owner &&other) noexcept {
        if (this != &other) {
            reset();
            handle_ = std::exchange(other.handle_, nullptr);
        }
        return *this;
    }
    owner(const owner &) = delete;
    owner &operator=(const owner &) = delete;
    ~owner() { reset(); }

    /** The handle, which stays the owner's. */
    Handle *get() const noexcept { return handle_; }
    /** The handle, to be freed by the caller. */
    Handle *release() noexcept { return std::exchange(handle_, nullptr); }
    explicit operator bool() const noexcept { return handle_ != nullptr; }

private:
    void reset() noexcept {
        if (handle_ != nullptr) (void)Free(handle_);
        handle_ = nullptr;
    }
    Handle *handle_ = nullptr;
};

template <class Struct> Struct initialised(tiled_status (*init)(Struct *, uint32_t)) noexcept {
    Struct value{};
    (void)init(&value, static_cast<uint32_t>(sizeof value));
    return value;
}

template <class T> constexpr int32_t dtype_of() noexcept {
    using element = std::remove_cv_t<T>;
    static_assert(std::is_same_v<element, float> || std::is_same_v<element, double> ||
                      (std::is_integral_v<element> && !std::is_same_v<element, bool>),
                  "tensors hold float, double or integers");
    if constexpr (std::is_same_v<element, float>) {
        return TILED_DTYPE_F32;
    } else if constexpr (std::is_same_v<element, double>) {
        return TILED_DTYPE_F64;
    } else {
        constexpr int32_t is_signed = std::is_signed_v<element> ? 1 : 0;
        // U8, I8, U16, I16 and so on follow one another
        return TILED_DTYPE_U8 + is_signed + (sizeof(element) == 1 ? 0 : sizeof(element) == 2 ? 2 : sizeof(element) == 4 ? 4 : 6);
    }
}

/** Makes an owner of what a `_new` gives out. */
template <class Owner, class Handle, class Make> result<Owner> made(Make &&make) {
    Handle *handle = nullptr;
    const tiled_status status = make(&handle);
    return done(status, Owner(handle));
}

/** Reads the text of a function that takes buffer, capacity and length. */
template <class Read> tiled_status read_text(std::string &text, Read &&read) {
    size_t length = 0;
    tiled_status status = read(nullptr, size_t{0}, &length);
    if (status == TILED_STATUS_OK) {
        text.resize(length + 1);
        status = read(text.data(), text.size(), &length);
        text.resize(length);
    }
    return status;
}

/** The same as a result. */
template <class Read> result<std::string> text(Read &&read) {
    std::string text;
    const tiled_status status = read_text(text, read);
    return done(status, std::move(text));
}

} // namespace detail

/** Structs of attributes and options with their defaults. */
inline tiled_conv2d conv2d() noexcept { return detail::initialised(tiled_conv2d_init); }
inline tiled_pool2d pool2d() noexcept { return detail::initialised(tiled_pool2d_init); }
inline tiled_operator_options operator_options() noexcept { return detail::initialised(tiled_operator_options_init); }
inline tiled_engine_options engine_options() noexcept { return detail::initialised(tiled_engine_options_init); }
inline tiled_plan_options plan_options() noexcept { return detail::initialised(tiled_plan_options_init); }
inline tiled_objective objective() noexcept { return detail::initialised(tiled_objective_init); }
inline tiled_optimizer optimizer() noexcept { return detail::initialised(tiled_optimizer_init); }
inline tiled_source source() noexcept { return detail::initialised(tiled_source_init); }
inline tiled_sink sink() noexcept { return detail::initialised(tiled_sink_init); }
inline tiled_changes changes() noexcept { return detail::initialised(tiled_changes_init); }
inline tiled_allocator allocator() noexcept { return detail::initialised(tiled_allocator_init); }
inline tiled_logger logger() noexcept { return detail::initialised(tiled_logger_init); }

/** Where large blocks come from and where messages go, for the whole process; without an argument the defaults. */
inline result<void> allocator_set(const tiled_allocator &value) { return detail::done(tiled_allocator_set(&value)); }
inline result<void> allocator_set() { return detail::done(tiled_allocator_set(nullptr)); }
inline result<void> logger_set(const tiled_logger &value) { return detail::done(tiled_logger_set(&value)); }
inline result<void> logger_set() { return detail::done(tiled_logger_set(nullptr)); }

/** An NCHW tensor in memory of the caller, contiguous or strided; owns nothing. Integers are for runs alone. */
class tensor {
public:
    template <class T> tensor(T *data, const shape &extents) : tensor(data, extents, contiguous(extents)) {}

    template <class T> tensor(T *data, const shape &extents, const shape &strides) {
        value_ = detail::initialised(tiled_tensor_init);
        value_.dtype = detail::dtype_of<T>();
        value_.data = const_cast<std::remove_cv_t<T> *>(data);
        for (size_t axis = 0; axis < 4; ++axis) {
            value_.shape[axis] = extents[axis];
            value_.strides[axis] = strides[axis];
        }
    }

    explicit tensor(const tiled_tensor &value) : value_(value) {}

    /** The same memory, said to be a GPU's: `TILED_MEMORY_CUDA` or `TILED_MEMORY_CUDA_SIM`, which of them, and the stream that its contents are
     *  ordered by. For sources and sinks of runs on that device. */
    tensor on(int32_t device_type, int32_t device_id = 0, void *stream = nullptr) const noexcept {
        tensor moved = *this;
        moved.value_.device_type = device_type;
        moved.value_.device_id = device_id;
        moved.value_.stream = stream;
        return moved;
    }

    const tiled_tensor *get() const noexcept { return &value_; }
    const tiled_tensor &value() const noexcept { return value_; }
    shape extents() const noexcept { return {value_.shape[0], value_.shape[1], value_.shape[2], value_.shape[3]}; }

private:
    // unsigned, so that extents that overflow are left for the library to tell
    static shape contiguous(const shape &extents) noexcept {
        const auto w = static_cast<uint64_t>(extents[3]);
        const auto hw = w * static_cast<uint64_t>(extents[2]);
        const auto chw = hw * static_cast<uint64_t>(extents[1]);
        return {static_cast<int64_t>(chw), static_cast<int64_t>(hw), static_cast<int64_t>(w), 1};
    }
    tiled_tensor value_{};
};

/** A tensor of another framework, without a copy: its memory stays what it was, valid until its deleter is called. */
inline result<tensor> from_dlpack(const DLManagedTensor *managed) {
    tiled_tensor value = detail::initialised(tiled_tensor_init);
    const tiled_status status = tiled_tensor_from_dlpack(managed, &value, static_cast<uint32_t>(sizeof value));
    return detail::done(status, tensor(value));
}
inline result<tensor> from_dlpack(const DLManagedTensorVersioned *managed) {
    tiled_tensor value = detail::initialised(tiled_tensor_init);
    const tiled_status status = tiled_tensor_from_dlpack_versioned(managed, &value, static_cast<uint32_t>(sizeof value));
    return detail::done(status, tensor(value));
}
/** Offers memory to another framework, which calls the deleter of what it gets once; that calls `release(user)`. */
inline result<DLManagedTensor *> to_dlpack(const tensor &memory, void (*release)(void *user) = nullptr,
                                           void *user = nullptr) {
    DLManagedTensor *managed = nullptr;
    const tiled_status status = tiled_tensor_to_dlpack(memory.get(), release, user, &managed);
    return detail::done(status, std::move(managed));
}
inline result<DLManagedTensorVersioned *> to_dlpack_versioned(const tensor &memory, void (*release)(void *user) = nullptr,
                                                              void *user = nullptr) {
    DLManagedTensorVersioned *managed = nullptr;
    const tiled_status status = tiled_tensor_to_dlpack_versioned(memory.get(), release, user, &managed);
    return detail::done(status, std::move(managed));
}

/** The window that a callback fills or reads: contiguous, N×C×rows×columns. */
template <class T> class block {
public:
    explicit block(const tiled_tensor *view) : window_(*view) {}

    T *data() const noexcept { return static_cast<T *>(window_.data); }
    size_t size() const noexcept {
        return static_cast<size_t>(window_.shape[0] * window_.shape[1] * window_.shape[2] * window_.shape[3]);
    }
    T *begin() const noexcept { return data(); }
    T *end() const noexcept { return data() + size(); }
    shape extents() const noexcept { return {window_.shape[0], window_.shape[1], window_.shape[2], window_.shape[3]}; }
    /** The element of an image and channel at a row and column within the window. */
    T &operator()(int64_t n, int64_t c, int64_t row, int64_t col) const noexcept {
        return data()[((n * window_.shape[1] + c) * window_.shape[2] + row) * window_.shape[3] + col];
    }

private:
    tiled_tensor window_;
};

/** Geometry: what a window reads and what reads it. */
inline result<interval> receptive(const window &w, interval outputs) {
    interval inputs{};
    const tiled_status status = tiled_window_receptive(&w, outputs, &inputs);
    return detail::done(status, std::move(inputs));
}
inline result<interval> touched(const window &w, interval inputs) {
    interval outputs{};
    const tiled_status status = tiled_window_touched(&w, inputs, &outputs);
    return detail::done(status, std::move(outputs));
}
inline result<interval> computable(const window &w, interval inputs) {
    interval outputs{};
    const tiled_status status = tiled_window_computable(&w, inputs, &outputs);
    return detail::done(status, std::move(outputs));
}
inline result<window> then(const window &first, const window &second) {
    window both{};
    const tiled_status status = tiled_window_then(&first, &second, &both);
    return detail::done(status, std::move(both));
}
inline result<int64_t> outputs(const window &w, int64_t extent, int64_t padding_after, bool ceil_mode = false) {
    int64_t count = 0;
    const tiled_status status = tiled_window_outputs(&w, extent, padding_after, ceil_mode ? 1 : 0, &count);
    return detail::done(status, std::move(count));
}
inline result<region> receptive(const std::array<window, 2> &w, region outputs, int64_t height, int64_t width) {
    region inputs{};
    const tiled_status status = tiled_region_receptive(w.data(), outputs, height, width, &inputs);
    return detail::done(status, std::move(inputs));
}
inline result<region> touched(const std::array<window, 2> &w, region inputs, int64_t height, int64_t width) {
    region outputs{};
    const tiled_status status = tiled_region_touched(w.data(), inputs, height, width, &outputs);
    return detail::done(status, std::move(outputs));
}
inline result<region> intersect(region a, region b) {
    region both{};
    const tiled_status status = tiled_region_intersect(a, b, &both);
    return detail::done(status, std::move(both));
}
inline result<std::array<int64_t, 4>> excess(region r, region image) {
    std::array<int64_t, 4> amounts{};
    const tiled_status status = tiled_region_excess(r, image, amounts.data());
    return detail::done(status, std::move(amounts));
}

/** A partition of an image into tiles. */
class grid : public detail::owner<tiled_grid, tiled_grid_free> {
public:
    using owner::owner;

    static result<grid> from_tile(int64_t height, int64_t width, int64_t tile_height, int64_t tile_width) {
        return detail::made<grid, tiled_grid>(
            [&](tiled_grid **out) { return tiled_grid_new(height, width, tile_height, tile_width, out); });
    }
    static result<grid> from_counts(int64_t height, int64_t width, int64_t rows, int64_t cols) {
        return detail::made<grid, tiled_grid>(
            [&](tiled_grid **out) { return tiled_grid_new_from_counts(height, width, rows, cols, out); });
    }
    result<std::array<int64_t, 2>> counts() const {
        std::array<int64_t, 2> counts{};
        const tiled_status status = tiled_grid_counts(get(), counts.data());
        return detail::done(status, std::move(counts));
    }
    /** The same tiles over an image of other extents. */
    result<grid> rescale(int64_t height, int64_t width) const {
        return detail::made<grid, tiled_grid>(
            [&](tiled_grid **out) { return tiled_grid_rescale(get(), height, width, out); });
    }
    result<region> tile(int64_t row, int64_t col) const {
        region tile{};
        const tiled_status status = tiled_grid_tile(get(), row, col, &tile);
        return detail::done(status, std::move(tile));
    }
};

/** A device that engines can be made for, or the reason why it is not there. */
struct device_info {
    /** What `engine::on` takes. */
    std::string name;
    /** What it is, or why it is not there. */
    std::string text;
    /** Its kind, memory and multiprocessors. */
    tiled_device figures{};

    bool is_there() const noexcept { return figures.is_there != 0; }
};

/** Every device: the CPU first, then the GPUs or why there are none, then those that can be simulated. */
inline result<std::vector<device_info>> devices() {
    std::vector<device_info> all;
    size_t count = 0;
    tiled_status status = tiled_device_count(&count);
    for (size_t index = 0; index < count && status == TILED_STATUS_OK; ++index) {
        device_info one;
        status = tiled_device_describe(index, &one.figures, static_cast<uint32_t>(sizeof one.figures));
        if (status == TILED_STATUS_OK) {
            status = detail::read_text(one.name, [&](char *buffer, size_t capacity, size_t *length) {
                return tiled_device_name(index, buffer, capacity, length);
            });
        }
        if (status == TILED_STATUS_OK) {
            status = detail::read_text(one.text, [&](char *buffer, size_t capacity, size_t *length) {
                return tiled_device_text(index, buffer, capacity, length);
            });
        }
        all.push_back(std::move(one));
    }
    return detail::done(status, std::move(all));
}

/** A backend, its threads and the memory of single operators. */
class engine : public detail::owner<tiled_engine, tiled_engine_free> {
public:
    using owner::owner;

    static result<engine> make(const tiled_engine_options &options = engine_options()) {
        return detail::made<engine, tiled_engine>([&](tiled_engine **out) { return tiled_engine_new(&options, out); });
    }
    /** One for a device: `"cpu"`, `"cuda"`, `"cuda:1"`, `"cuda-sim"`. */
    static result<engine> on(const std::string &device, tiled_engine_options options = engine_options()) {
        options.device = device.c_str();
        return make(options);
    }
    result<std::string> name() const {
        return detail::text(
            [&](char *buffer, size_t capacity, size_t *length) { return tiled_engine_name(get(), buffer, capacity, length); });
    }

    result<uint32_t> threads() const {
        uint32_t threads = 0;
        const tiled_status status = tiled_engine_threads(get(), &threads);
        return detail::done(status, std::move(threads));
    }

    result<void> conv2d_forward(const tiled_conv2d &conv, const tensor &input, const tensor &weight, const tensor *bias,
                                const tensor &output, const tiled_operator_options &options = operator_options()) {
        return detail::done(tiled_conv2d_forward(get(), &conv, &options, input.get(), weight.get(),
                                                 bias == nullptr ? nullptr : bias->get(), output.get()));
    }
    result<void> conv2d_backward_input(const tiled_conv2d &conv, const tensor &grad_output, const tensor &weight,
                                       const tensor &grad_input,
                                       const tiled_operator_options &options = operator_options()) {
        return detail::done(tiled_conv2d_backward_input(get(), &conv, &options, grad_output.get(), weight.get(),
                                                        grad_input.get()));
    }
    result<void> conv2d_backward_weight(const tiled_conv2d &conv, const tensor &input, const tensor &grad_output,
                                        const tensor &grad_weight, const tensor *grad_bias,
                                        const tiled_operator_options &options = operator_options()) {
        return detail::done(tiled_conv2d_backward_weight(get(), &conv, &options, input.get(), grad_output.get(),
                                                         grad_weight.get(),
                                                         grad_bias == nullptr ? nullptr : grad_bias->get()));
    }
    result<void> max_pool2d_forward(const tiled_pool2d &pool, const tensor &input, const tensor &output,
                                    const tiled_operator_options &options = operator_options()) {
        return detail::done(tiled_max_pool2d_forward(get(), &pool, &options, input.get(), output.get()));
    }
    result<void> max_pool2d_backward(const tiled_pool2d &pool, const tensor &grad_output, const tensor &input,
                                     const tensor &grad_input,
                                     const tiled_operator_options &options = operator_options()) {
        return detail::done(
            tiled_max_pool2d_backward(get(), &pool, &options, grad_output.get(), input.get(), grad_input.get()));
    }
    result<void> avg_pool2d_forward(const tiled_pool2d &pool, const tensor &input, const tensor &output,
                                    const tiled_operator_options &options = operator_options()) {
        return detail::done(tiled_avg_pool2d_forward(get(), &pool, &options, input.get(), output.get()));
    }
    result<void> avg_pool2d_backward(const tiled_pool2d &pool, const tensor &grad_output, const tensor &grad_input,
                                     const tiled_operator_options &options = operator_options()) {
        return detail::done(tiled_avg_pool2d_backward(get(), &pool, &options, grad_output.get(), grad_input.get()));
    }
};

/** A network. */
class graph : public detail::owner<tiled_graph, tiled_graph_free> {
public:
    using owner::owner;

    static result<graph> make() {
        return detail::made<graph, tiled_graph>([](tiled_graph **out) { return tiled_graph_new(out); });
    }
    static result<graph> from_json(std::string_view json) {
        return detail::made<graph, tiled_graph>(
            [&](tiled_graph **out) { return tiled_graph_from_json(json.data(), json.size(), out); });
    }
    static result<graph> builtin(const std::string &name) {
        return detail::made<graph, tiled_graph>([&](tiled_graph **out) { return tiled_graph_builtin(name.c_str(), out); });
    }
    result<tiled_value> add_input(const std::string &name, int64_t channels) {
        tiled_value value = 0;
        const tiled_status status = tiled_graph_add_input(get(), name.c_str(), channels, &value);
        return detail::done(status, std::move(value));
    }
    /** `attributes` is a JSON object in the words of the network format. */
    result<tiled_value> add_node(const std::string &name, const std::string &op, const std::string &attributes,
                                 const std::vector<tiled_value> &inputs) {
        tiled_value value = 0;
        const tiled_status status =
            tiled_graph_add_node(get(), name.c_str(), op.c_str(), attributes.empty() ? nullptr : attributes.c_str(),
                                 inputs.data(), inputs.size(), &value);
        return detail::done(status, std::move(value));
    }
    result<void> set_outputs(const std::vector<tiled_value> &outputs) {
        return detail::done(tiled_graph_set_outputs(get(), outputs.data(), outputs.size()));
    }
    /** The numbers of inputs, of nodes and of outputs. */
    result<std::array<size_t, 3>> counts() const {
        std::array<size_t, 3> counts{};
        const tiled_status status = tiled_graph_counts(get(), counts.data());
        return detail::done(status, std::move(counts));
    }
    result<tiled_value> output(size_t index) const {
        tiled_value value = 0;
        const tiled_status status = tiled_graph_output(get(), index, &value);
        return detail::done(status, std::move(value));
    }
    result<std::string> name(tiled_value value) const {
        return detail::text([&](char *buffer, size_t capacity, size_t *length) {
            return tiled_graph_name(get(), value, buffer, capacity, length);
        });
    }
    result<int64_t> channels(tiled_value value) const {
        int64_t channels = 0;
        const tiled_status status = tiled_graph_channels(get(), value, &channels);
        return detail::done(status, std::move(channels));
    }
    result<tiled_value> value(const std::string &name) const {
        tiled_value value = 0;
        const tiled_status status = tiled_graph_value(get(), name.c_str(), &value);
        return detail::done(status, std::move(value));
    }
    result<shape> shape_of(tiled_value value, const std::vector<shape> &inputs) const {
        shape extents{};
        const int64_t *first = inputs.empty() ? nullptr : inputs.front().data();
        const tiled_status status = tiled_graph_shape(get(), first, inputs.size(), value, extents.data());
        return detail::done(status, std::move(extents));
    }
    result<std::string> to_json() const {
        return detail::text(
            [&](char *buffer, size_t capacity, size_t *length) { return tiled_graph_to_json(get(), buffer, capacity, length); });
    }
};

/** The parameters of a network. */
class weights : public detail::owner<tiled_weights, tiled_weights_free> {
public:
    using owner::owner;

    template <class T> static result<weights> make(const graph &network, uint64_t seed) {
        return detail::made<weights, tiled_weights>([&](tiled_weights **out) {
            return tiled_weights_new(network.get(), detail::dtype_of<T>(), seed, out);
        });
    }
    template <class T> static result<weights> load(const graph &network, const std::string &path) {
        return detail::made<weights, tiled_weights>([&](tiled_weights **out) {
            return tiled_weights_load(network.get(), detail::dtype_of<T>(), path.c_str(), out);
        });
    }
    result<weights> clone() const {
        return detail::made<weights, tiled_weights>([&](tiled_weights **out) { return tiled_weights_clone(get(), out); });
    }
    result<void> save(const std::string &path) const { return detail::done(tiled_weights_save(get(), path.c_str())); }
    result<size_t> count() const {
        size_t count = 0;
        const tiled_status status = tiled_weights_count(get(), &count);
        return detail::done(status, std::move(count));
    }
    result<std::string> name(size_t index) const {
        return detail::text([&](char *buffer, size_t capacity, size_t *length) {
            return tiled_weights_name(get(), index, buffer, capacity, length);
        });
    }
    result<size_t> find(const std::string &name) const {
        size_t index = 0;
        const tiled_status status = tiled_weights_find(get(), name.c_str(), &index);
        return detail::done(status, std::move(index));
    }
    /** The extents, padded with ones to four. */
    result<shape> shape_of(size_t index) const {
        shape extents{};
        size_t rank = 0;
        const tiled_status status = tiled_weights_shape(get(), index, extents.data(), &rank);
        return detail::done(status, std::move(extents));
    }
    template <class T> result<void> set(size_t index, const T *data, size_t count) {
        return detail::done(tiled_weights_set(get(), index, detail::dtype_of<T>(), data, count));
    }
    template <class T> result<void> read(size_t index, T *data, size_t count) const {
        return detail::done(tiled_weights_get(get(), index, detail::dtype_of<T>(), data, count));
    }
};

/** What a run will do and the memory that it takes. */
class plan : public detail::owner<tiled_plan, tiled_plan_free> {
public:
    using owner::owner;

    template <class T>
    static result<plan> make(const engine &on, const graph &network, const std::vector<shape> &inputs,
                             const tiled_objective &goal = objective(), const tiled_plan_options &options = plan_options()) {
        const int64_t *first = inputs.empty() ? nullptr : inputs.front().data();
        return detail::made<plan, tiled_plan>([&](tiled_plan **out) {
            return tiled_plan_new(on.get(), network.get(), detail::dtype_of<T>(), first, inputs.size(), &goal, &options, out);
        });
    }
    result<tiled_plan_summary> summarise() const {
        tiled_plan_summary summary{};
        const tiled_status status = tiled_plan_summarise(get(), &summary, static_cast<uint32_t>(sizeof summary));
        return detail::done(status, std::move(summary));
    }
    /** The plan explained; `format` is one of `TILED_EXPLAIN_…`. */
    result<std::string> explain(int32_t format = TILED_EXPLAIN_TEXT) const {
        return detail::text([&](char *buffer, size_t capacity, size_t *length) {
            return tiled_plan_explain(get(), format, buffer, capacity, length);
        });
    }
    /** The rows and columns of tiles and the number of nodes of a pass over the image. */
    result<std::array<int64_t, 3>> sweep(size_t index) const {
        std::array<int64_t, 3> counts{};
        const tiled_status status = tiled_plan_sweep(get(), index, counts.data());
        return detail::done(status, std::move(counts));
    }
    result<std::string> node_name(size_t sweep, size_t node) const {
        return detail::text([&](char *buffer, size_t capacity, size_t *length) {
            return tiled_plan_node_name(get(), sweep, node, buffer, capacity, length);
        });
    }
    /** The region of a node's tensor that a tile needs. */
    result<region> region_of(size_t sweep, size_t node, int64_t row, int64_t col) const {
        region needed{};
        const tiled_status status = tiled_plan_region(get(), sweep, node, row, col, &needed);
        return detail::done(status, std::move(needed));
    }
};

/** The tensors of a run: memory and lambdas. Keep what it refers to until the run is over. */
class io {
public:
    io() = default;
    io(const io &) = delete;
    io &operator=(const io &) = delete;

    io &input(const tensor &memory) { return add(inputs_, memory); }
    io &target(const tensor &memory) { return add(target_, memory); }
    io &grad_output(const tensor &memory) { return add(grad_outputs_, memory); }
    io &output(const tensor &memory) { return add(outputs_, memory); }
    io &grad_input(const tensor &memory) { return add(grad_inputs_, memory); }

    /** Memory whose values are read as `how` says: `numbers`, `scale`, `mean` and `std` of `source()`, which stay until the
     *  run is over. */
    io &input(const tensor &memory, const tiled_source &how) { return add(inputs_, memory, how); }
    io &target(const tensor &memory, const tiled_source &how) { return add(target_, memory, how); }
    /** Memory that is written as `how` says: `numbers`, `decision`, `channels`, `threshold` and `changes` of `sink()`. */
    io &output(const tensor &memory, const tiled_sink &how) { return add(outputs_, memory, how); }

    /** `read(region, block<T>)` fills the block, and is called by several threads at once unless `serial`. */
    template <class T, class Read> io &input(const shape &extents, Read read, bool serial = false) {
        return add_source<T>(inputs_, extents, std::move(read), serial);
    }
    template <class T, class Read> io &target(const shape &extents, Read read, bool serial = false) {
        return add_source<T>(target_, extents, std::move(read), serial);
    }
    template <class T, class Read> io &grad_output(const shape &extents, Read read, bool serial = false) {
        return add_source<T>(grad_outputs_, extents, std::move(read), serial);
    }
    /** An input in chunks of `rows` and `columns` of T, which the plan's options know of: `read(row, column, block<T>)` fills the block with
     *  the chunk in this row and column of chunks. */
    template <class T, class Read>
    io &input_in_chunks(const shape &extents, int64_t rows, int64_t columns, Read read, bool serial = false,
                        const tiled_source &how = source()) {
        using signature = void(int64_t, int64_t, block<T>);
        add(inputs_, tensor(static_cast<T *>(nullptr), extents), how);
        tiled_source &made = inputs_.back();
        made.is_serial = serial ? 1 : 0;
        made.chunk_shape[0] = rows, made.chunk_shape[1] = columns;
        made.user = keep(std::function<signature>(std::move(read)));
        made.read_chunk = [](void *user, int64_t row, int64_t column, const tiled_tensor *view) -> int32_t {
            auto *self = static_cast<callback<signature> *>(user);
            return self->guarded([&] { self->function(row, column, block<T>(view)); });
        };
        return *this;
    }
    /** `write(region, block<const T>)` takes the block, and is called by several threads at once unless `serial`.
     *  `end(is_complete)`, where there is one, hears once how the run ended. */
    template <class T, class Write>
    io &output(const shape &extents, Write write, bool serial = false, std::function<void(bool)> end = {}) {
        return add_sink<T>(outputs_, extents, std::move(write), serial, std::move(end));
    }
    template <class T, class Write>
    io &grad_input(const shape &extents, Write write, bool serial = false, std::function<void(bool)> end = {}) {
        return add_sink<T>(grad_inputs_, extents, std::move(write), serial, std::move(end));
    }
    /** `step(done, total)` returns whether to go on, and is called by several threads at once. */
    template <class Step> io &progress(Step step) {
        progress_ = detail::initialised(tiled_progress_init);
        auto *kept = keep(std::function<bool(uint64_t, uint64_t)>(std::move(step)));
        progress_->user = kept;
        progress_->step = [](void *user, uint64_t done, uint64_t total) -> int32_t {
            auto *self = static_cast<callback<bool(uint64_t, uint64_t)> *>(user);
            bool goes_on = false;
            const int32_t failed = self->guarded([&] { goes_on = self->function(done, total); });
            return failed != 0 || !goes_on ? 1 : 0;
        };
        return *this;
    }

    /** Runs `call(tiled_io *)`, and throws again what a lambda threw. */
    template <class Call> result<void> with(Call &&call) {
        tiled_io value = detail::initialised(tiled_io_init);
        value.inputs = inputs_.data();
        value.input_count = inputs_.size();
        value.target = target_.empty() ? nullptr : target_.data();
        value.grad_outputs = grad_outputs_.data();
        value.grad_output_count = grad_outputs_.size();
        value.outputs = outputs_.data();
        value.output_count = outputs_.size();
        value.grad_inputs = grad_inputs_.data();
        value.grad_input_count = grad_inputs_.size();
        value.progress = progress_ ? &*progress_ : nullptr;
        const tiled_status status = call(&value);
#ifndef TILED_NO_EXCEPTIONS
        if (const std::exception_ptr what = std::exchange(thrown_->value, nullptr)) std::rethrow_exception(what);
#endif
        return detail::done(status);
    }

private:
    /** The first exception of a run's lambdas. */
    struct thrown {
        std::mutex mutex;
#ifndef TILED_NO_EXCEPTIONS
        std::exception_ptr value;
#endif
    };
    struct held {
        virtual ~held() = default;
    };
    template <class Signature> struct callback : held {
        callback(std::function<Signature> f, thrown *t) : function(std::move(f)), first(t) {}

        template <class Body> int32_t guarded(Body &&body) noexcept {
#ifndef TILED_NO_EXCEPTIONS
            try {
                body();
            } catch (...) {
                const std::lock_guard<std::mutex> lock(first->mutex);
                if (!first->value) first->value = std::current_exception();
                return 1;
            }
#else
            body();
#endif
            return 0;
        }
        std::function<Signature> function;
        std::function<void(bool)> end;
        thrown *first;
    };

    template <class Signature> callback<Signature> *keep(std::function<Signature> function) {
        auto made = std::make_unique<callback<Signature>>(std::move(function), thrown_.get());
        auto *raw = made.get();
        held_.push_back(std::move(made));
        return raw;
    }
    io &add(std::vector<tiled_source> &to, const tensor &memory, const tiled_source &how = source()) {
        to.push_back(how);
        to.back().tensor = memory.value();
        return *this;
    }
    io &add(std::vector<tiled_sink> &to, const tensor &memory, const tiled_sink &how = sink()) {
        to.push_back(how);
        to.back().tensor = memory.value();
        return *this;
    }
    template <class T, class Read> io &add_source(std::vector<tiled_source> &to, const shape &extents, Read read, bool serial) {
        using signature = void(region, block<T>);
        add(to, tensor(static_cast<T *>(nullptr), extents));
        to.back().is_serial = serial ? 1 : 0;
        to.back().user = keep(std::function<signature>(std::move(read)));
        to.back().read = [](void *user, tiled_region wanted, const tiled_tensor *view) -> int32_t {
            auto *self = static_cast<callback<signature> *>(user);
            return self->guarded([&] { self->function(wanted, block<T>(view)); });
        };
        return *this;
    }
    template <class T, class Write>
    io &add_sink(std::vector<tiled_sink> &to, const shape &extents, Write write, bool serial,
                 std::function<void(bool)> end) {
        using signature = void(region, block<const T>);
        add(to, tensor(static_cast<T *>(nullptr), extents));
        to.back().is_serial = serial ? 1 : 0;
        auto *kept = keep(std::function<signature>(std::move(write)));
        kept->end = std::move(end);
        to.back().user = kept;
        if (kept->end)
            to.back().end = [](void *user, int32_t is_complete) -> int32_t {
                auto *self = static_cast<callback<signature> *>(user);
                return self->guarded([&] { self->end(is_complete != 0); });
            };
        to.back().write = [](void *user, tiled_region ready, const tiled_tensor *view) -> int32_t {
            auto *self = static_cast<callback<signature> *>(user);
            return self->guarded([&] { self->function(ready, block<const T>(view)); });
        };
        return *this;
    }

    std::vector<tiled_source> inputs_, target_, grad_outputs_;
    std::vector<tiled_sink> outputs_, grad_inputs_;
    std::optional<tiled_progress> progress_;
    std::vector<std::unique_ptr<held>> held_;
    std::unique_ptr<thrown> thrown_ = std::make_unique<thrown>();
};

namespace detail {
inline tiled_report report() noexcept {
    tiled_report value{};
    value.struct_size = static_cast<uint32_t>(sizeof value);
    return value;
}
#ifndef TILED_NO_EXCEPTIONS
inline result<tiled_report> reported(const tiled_report &value) { return value; }
#else
inline result<tiled_report> reported(result<void> &&status, const tiled_report &value) {
    if (!status) return {status.status(), status.message()};
    return value;
}
#endif
template <class Run> result<tiled_report> run(io &tensors, Run &&call) {
    tiled_report value = report();
#ifndef TILED_NO_EXCEPTIONS
    tensors.with([&](const tiled_io *raw) { return call(raw, &value); });
    return reported(value);
#else
    return reported(tensors.with([&](const tiled_io *raw) { return call(raw, &value); }), value);
#endif
}
} // namespace detail

/** A run whose outputs are written and whose gradients wait for those of the outputs. */
class pending : public detail::owner<tiled_pending, tiled_pending_free> {
public:
    using owner::owner;

    /** The bytes that it holds. */
    result<uint64_t> bytes() const {
        uint64_t bytes = 0;
        const tiled_status status = tiled_pending_bytes(get(), &bytes);
        return detail::done(status, bytes);
    }
};

/** Runs a plan. */
class executor : public detail::owner<tiled_executor, tiled_executor_free> {
public:
    using owner::owner;

    static result<executor> make(const engine &on, const plan &what) {
        return detail::made<executor, tiled_executor>(
            [&](tiled_executor **out) { return tiled_executor_new(on.get(), what.get(), out); });
    }
    result<tiled_report> run(weights &params, io &tensors) {
        return detail::run(tensors, [&](const tiled_io *raw, tiled_report *report) {
            return tiled_executor_run(get(), params.get(), raw, report);
        });
    }
    /** The first half of a plan with `TILED_LOSS_GRAD_OUTPUT_LATER`: its outputs. */
    result<pending> forward(weights &params, io &tensors) {
        tiled_pending *handle = nullptr;
        const auto call = [&](const tiled_io *raw) {
            return tiled_executor_forward(get(), params.get(), raw, &handle, nullptr);
        };
#ifndef TILED_NO_EXCEPTIONS
        tensors.with(call);
#else
        const auto status = tensors.with(call);
        if (!status) return {status.status(), status.message()};
#endif
        return pending(handle);
    }
    /** The second half: its gradients. `run` is used up. */
    result<tiled_report> backward(pending run, const weights &params, io &tensors) {
        return detail::run(tensors, [&](const tiled_io *raw, tiled_report *report) {
            return tiled_executor_backward(get(), run.get(), params.get(), raw, report);
        });
    }
    template <class T> result<void> gradient(size_t index, T *data, size_t count) const {
        return detail::done(tiled_executor_gradient(get(), index, detail::dtype_of<T>(), data, count));
    }
};

/** Trains parameters, one step at a time. */
class trainer : public detail::owner<tiled_trainer, tiled_trainer_free> {
public:
    using owner::owner;

    static result<trainer> make(const engine &on, const plan &what, const tiled_optimizer &with) {
        return detail::made<trainer, tiled_trainer>(
            [&](tiled_trainer **out) { return tiled_trainer_new(on.get(), what.get(), &with, out); });
    }
    result<tiled_report> step(weights &params, io &tensors) {
        return detail::run(tensors, [&](const tiled_io *raw, tiled_report *report) {
            return tiled_trainer_step(get(), params.get(), raw, report);
        });
    }
    result<void> set_learning_rate(double learning_rate) {
        return detail::done(tiled_trainer_set_learning_rate(get(), learning_rate));
    }
    template <class T> result<void> gradient(size_t index, T *data, size_t count) const {
        return detail::done(tiled_trainer_gradient(get(), index, detail::dtype_of<T>(), data, count));
    }
};

} // namespace TILED_MODE
} // namespace tiled

#undef TILED_MODE

#endif // TILED_HPP
