import { decodeText, encodeText } from "./guest-text.ts";
import type { SandboxLimits } from "./limits.ts";
import { type Exports, type Handle, type WasmModule, WebAssembly } from "./quickjs-exports.ts";

/** The clock of every candidate: 2020-01-01T00:00:00Z, standing still. It also seeds `Math.random`. */
const CLOCK_NS = 1_577_836_800_000_000_000n;
const ERRNO_BADF = 8;
const ERRNO_NOSYS = 52;
const COMPILE_ONLY = 1 << 5;
/** The module's stack fills the first MiB of its memory and grows down from here. */
const STACK_TOP = 1024 * 1024;
/** Only this much below the stack pointer can have been written: the engine's own stack limit, and room for its C code. */
const STACK_MARGIN = 96 * 1024;

/**
 * One QuickJS engine in one WASM instance, put back to the same image before every candidate. The engine has no host
 * function: its twelve imports are a fixed clock, fixed random bytes, time zone zero, the interrupt check, and refusals.
 */
export class QuickJS {
  /** Constants of the image; they stay valid across `restore`. */
  readonly values: { undefined: Handle; null: Handle; true: Handle; false: Handle };
  /** Property keys, as engine strings. */
  readonly keys: { message: Handle; name: Handle };
  /** Identity of the original `Object.prototype` and `Array.prototype`. */
  readonly prototypes: { object: number; array: number };
  readonly #module: WasmModule;
  readonly #limits: SandboxLimits;
  #exports: Exports;
  #image: Uint8Array = new Uint8Array(0);
  #imageStackPointer = 0;
  #imageStart = 0;
  #scratch = 0;
  #names = new Map<string, number>();
  #bigint: Handle = 0;
  #deadline = Number.POSITIVE_INFINITY;
  #interrupted = false;

  /** Throws when the WASM module is not the expected one. `prelude` runs once, before the image is taken. */
  constructor(module: WasmModule, limits: SandboxLimits, prelude: string) {
    this.#module = module;
    this.#limits = limits;
    this.#exports = this.#instantiate();
    const x = this.#exports;
    x._initialize();
    if (x.qjs_init() !== 0) throw new Error("quickjs: expected a runtime, got a failed initialisation");
    x.qjs_set_memory_limit(limits.memoryBytes);
    x.qjs_set_max_stack_size(limits.stackBytes);
    x.qjs_set_interrupt_handler(1);
    this.#scratch = x.wasm_malloc(64);
    for (const name of ["candidate", "value", "length"]) this.#names.set(name, this.#writeName(name));
    this.values = {
      undefined: x.qjs_get_undefined(),
      null: x.qjs_get_null(),
      true: x.qjs_get_true(),
      false: x.qjs_get_false(),
    };
    this.keys = { message: this.newString("message"), name: this.newString("name") };
    this.#bigint = this.eval("BigInt");
    this.prototypes = {
      object: x.qjs_get_value_ptr(this.eval("Object.prototype")),
      array: x.qjs_get_value_ptr(this.eval("Array.prototype")),
    };
    if (this.isException(this.eval(prelude))) throw new Error("quickjs: expected the prelude to run, got an exception");
    this.#takeImage();
  }

  #instantiate(): Exports {
    let memory: Exports["memory"] | undefined;
    const view = () => new DataView((memory as Exports["memory"]).buffer);
    const refuse = () => 0;
    const instance = new WebAssembly.Instance(this.#module, {
      env: {
        host_interrupt: () => {
          this.#interrupted ||= performance.now() > this.#deadline;
          return this.#interrupted ? 1 : 0;
        },
        host_get_timezone_offset: () => 0,
        host_promise_rejection: refuse,
        host_module_normalize: refuse,
        host_module_load: refuse,
        host_call: refuse,
      },
      wasi_snapshot_preview1: {
        clock_time_get: (_clock: number, _precision: bigint, out: number) => {
          view().setBigUint64(out, CLOCK_NS, true);
          return 0;
        },
        random_get: (out: number, length: number) => {
          new Uint8Array(view().buffer, out, length).fill(0x42);
          return 0;
        },
        fd_write: () => ERRNO_BADF,
        fd_close: () => ERRNO_NOSYS,
        fd_fdstat_get: () => ERRNO_BADF,
        fd_seek: () => ERRNO_NOSYS,
      },
    });
    const exports = instance.exports as unknown as Exports;
    memory = exports.memory;
    return exports;
  }

  #takeImage(): void {
    const x = this.#exports;
    // Free space inside the image, so that an ordinary candidate does not have to grow the memory.
    x.wasm_free(x.wasm_malloc(512 * 1024));
    this.#imageStackPointer = x.__stack_pointer.value;
    // What is below the stack's reach never changes, and need not be put back.
    const reach = this.#imageStackPointer - this.#limits.stackBytes - STACK_MARGIN;
    this.#imageStart = this.#imageStackPointer === STACK_TOP ? Math.max(0, reach) : 0;
    this.#image = new Uint8Array(x.memory.buffer).slice();
  }

  /**
   * Puts the engine back to its image; every handle but the constants is void afterwards. With `discard`, or when the
   * memory has grown, the old instance is dropped and a new one takes the image.
   */
  restore(discard = false): void {
    if (discard || this.#exports.memory.buffer.byteLength !== this.#image.byteLength) {
      this.#exports = this.#instantiate();
      const { memory } = this.#exports;
      const missing = this.#image.byteLength - memory.buffer.byteLength;
      if (missing > 0) memory.grow(missing / 65536);
      new Uint8Array(memory.buffer).set(this.#image);
    } else {
      new Uint8Array(this.#exports.memory.buffer).set(this.#image.subarray(this.#imageStart), this.#imageStart);
    }
    this.#exports.__stack_pointer.value = this.#imageStackPointer;
    this.#interrupted = false;
    this.#deadline = Number.POSITIVE_INFINITY;
  }

  /** Lets candidate code run until `deadline` (milliseconds of `performance.now()`). */
  runUntil(deadline: number): void {
    this.#deadline = deadline;
  }

  /** Runs `source` as a script of its own and returns its completion value, or an exception. */
  eval(source: string): Handle {
    return this.#evaluate(source, 0);
  }

  /** Parses `source` as a script without running it; the result is an exception when it is not one. */
  compile(source: string): Handle {
    return this.#evaluate(source, COMPILE_ONLY);
  }

  #evaluate(source: string, flags: number): Handle {
    const { pointer, length } = this.#writeText(source);
    const name = this.#names.get("candidate") as number;
    const result = this.#exports.qjs_eval(pointer, length, name, flags);
    this.#exports.wasm_free(pointer);
    return result;
  }

  call(fn: Handle, args: Handle[]): Handle {
    const x = this.#exports;
    const list = args.length === 0 ? 0 : this.#allocate(args.length * 4);
    if (list !== 0) new Uint32Array(x.memory.buffer, list, args.length).set(args);
    const result = x.qjs_call(fn, this.values.undefined, args.length, list);
    if (list !== 0) x.wasm_free(list);
    return result;
  }

  isException(value: Handle): boolean {
    return this.#exports.qjs_is_exception(value) !== 0;
  }

  /** Takes the pending exception. `uncatchable` ones come from a limit, not from candidate code. */
  takeException(): { value: Handle; uncatchable: boolean } {
    const value = this.#exports.qjs_get_exception();
    return { value, uncatchable: this.#exports.qjs_is_uncatchable_error(value) !== 0 };
  }

  // Kinds. None of these runs candidate code, for any value.
  isUndefined = (value: Handle): boolean => this.#exports.qjs_is_undefined(value) !== 0;
  isNull = (value: Handle): boolean => this.#exports.qjs_is_null(value) !== 0;
  isBoolean = (value: Handle): boolean => this.#exports.qjs_is_bool(value) !== 0;
  isNumber = (value: Handle): boolean => this.#exports.qjs_is_number(value) !== 0;
  isString = (value: Handle): boolean => this.#exports.qjs_is_string(value) !== 0;
  isSymbol = (value: Handle): boolean => this.#exports.qjs_is_symbol(value) !== 0;
  isBigInt = (value: Handle): boolean => this.#exports.qjs_is_big_int(value) !== 0;
  isProxy = (value: Handle): boolean => this.#exports.qjs_is_proxy(value) !== 0;
  isArray = (value: Handle): boolean => this.#exports.qjs_is_array(value) !== 0;
  isFunction = (value: Handle): boolean => this.#exports.qjs_is_function(value) !== 0;
  /** Address of the object behind a handle: its identity. */
  identity = (value: Handle): number => this.#exports.qjs_get_value_ptr(value);
  classId = (value: Handle): number => this.#exports.qjs_get_class_id(value);
  /** Prototype of an object that is not a proxy. */
  prototypeOf = (value: Handle): Handle => this.#exports.qjs_get_prototype_of(value);

  /** Name of the engine's class of an object; a candidate cannot change it. */
  className(value: Handle): string {
    const name = this.#exports.qjs_get_class_name(value);
    return this.isString(name) ? this.text(name) : "object";
  }

  /** Value of a number. */
  number = (value: Handle): number => this.#exports.qjs_get_float64(value);
  boolean = (value: Handle): boolean => this.#exports.qjs_get_bool(value) !== 0;

  /** UTF-16 length of a string, or length of an array: both are own data properties that no candidate can redefine. */
  length(value: Handle): number {
    const length = this.#exports.qjs_get_prop_string(value, this.#names.get("length") as number);
    return this.#exports.qjs_get_float64(length);
  }

  /** Text of a string, or digits of a bigint. Throws `MemoryError` when the engine has no room for the copy. */
  text(value: Handle): string {
    const x = this.#exports;
    const bytes = x.qjs_get_string_len(value, this.#scratch);
    if (bytes === 0) throw new MemoryError();
    const length = new DataView(x.memory.buffer).getUint32(this.#scratch, true);
    const text = decodeText(Buffer.from(x.memory.buffer, bytes, length));
    x.qjs_free_cstring(bytes);
    return text;
  }

  /** Own keys of an object that is not a proxy, strings and symbols. */
  ownKeys(value: Handle): { list: Handle; count: number } {
    const list = this.#exports.qjs_get_own_property_keys(value);
    if (this.isException(list)) throw new MemoryError();
    return { list, count: this.length(list) };
  }

  /** Element of an array that this class made. */
  element = (list: Handle, index: number): Handle => this.#exports.qjs_get_prop_uint32(list, index);

  /**
   * An own property of an object that is not a proxy, without running getters: its value, `"accessor"`, or undefined
   * when there is none.
   */
  ownValue(object: Handle, key: Handle): Handle | "accessor" | undefined {
    const x = this.#exports;
    const descriptor = x.qjs_get_own_property_descriptor(object, key);
    if (descriptor === 0) return undefined;
    if (this.isException(descriptor)) throw new MemoryError();
    const name = this.#names.get("value") as number;
    const value = x.qjs_has_own_property(descriptor, name) === 1 ? x.qjs_get_prop_string(descriptor, name) : "accessor";
    x.qjs_free_value(descriptor);
    return value;
  }

  // Making values. Throws `MemoryError` when they do not fit.
  newNumber = (value: number): Handle => this.#exports.qjs_new_number(value);

  newString(text: string): Handle {
    const { pointer, length } = this.#writeText(text);
    const value = this.#exports.qjs_new_string(pointer, length);
    this.#exports.wasm_free(pointer);
    if (this.isException(value)) throw new MemoryError();
    return value;
  }

  newBigInt(digits: string): Handle {
    const value = this.call(this.#bigint, [this.newString(digits)]);
    if (this.isException(value)) throw new MemoryError();
    return value;
  }

  newArray(items: Handle[]): Handle {
    const array = this.#exports.qjs_new_array();
    for (let i = 0; i < items.length; i++) {
      if (this.#exports.qjs_set_prop_uint32(array, i, items[i]) < 0) throw new MemoryError();
    }
    return array;
  }

  newObject(entries: [string, Handle][]): Handle {
    const WRITABLE_ENUMERABLE_CONFIGURABLE = 7;
    const object = this.#exports.qjs_new_object();
    for (const [key, value] of entries) {
      const name = this.newString(key);
      if (this.#exports.qjs_define_prop_value(object, name, value, WRITABLE_ENUMERABLE_CONFIGURABLE) < 0) {
        throw new MemoryError();
      }
    }
    return object;
  }

  #allocate(bytes: number): number {
    const pointer = this.#exports.wasm_malloc(bytes);
    if (pointer === 0) throw new MemoryError();
    return pointer;
  }

  #writeName(text: string): number {
    return this.#writeText(text).pointer;
  }

  #writeText(text: string): { pointer: number; length: number } {
    // Three bytes hold any UTF-16 unit, and the engine wants a zero after the end.
    const pointer = this.#allocate(text.length * 3 + 1);
    const target = new Uint8Array(this.#exports.memory.buffer, pointer, text.length * 3 + 1);
    const length = encodeText(text, target);
    target[length] = 0;
    return { pointer, length };
  }
}

/** The engine's memory limit was met while a value was copied in or out. */
export class MemoryError extends Error {}
