/** A pointer to a boxed engine value in WASM memory. It is valid until the engine is restored. */
export type Handle = number;

/** A compiled WASM module. */
export type WasmModule = { readonly __module: unique symbol };

/** The part of the WebAssembly API that is used here; the language's own type library leaves it out. */
interface WebAssemblyApi {
  Module: new (bytes: Uint8Array) => WasmModule;
  Instance: new (
    module: WasmModule,
    imports: Record<string, Record<string, (...args: never[]) => number>>,
  ) => { exports: unknown };
}

export const { WebAssembly } = globalThis as unknown as { WebAssembly: WebAssemblyApi };

/** The exports of quickjs-wasi 3.7.0 that are used here. Handles and pointers are 32-bit integers. */
export interface Exports {
  memory: { readonly buffer: ArrayBuffer; grow(pages: number): number };
  __stack_pointer: { value: number };
  _initialize(): void;
  qjs_init(): number;
  qjs_set_memory_limit(bytes: number): void;
  qjs_set_max_stack_size(bytes: number): void;
  qjs_set_interrupt_handler(on: number): void;
  qjs_eval(source: number, length: number, name: number, flags: number): Handle;
  qjs_call(fn: Handle, self: Handle, count: number, handles: number): Handle;
  qjs_get_exception(): Handle;
  qjs_is_exception(value: Handle): number;
  qjs_is_uncatchable_error(value: Handle): number;
  qjs_get_undefined(): Handle;
  qjs_get_null(): Handle;
  qjs_get_true(): Handle;
  qjs_get_false(): Handle;
  qjs_new_number(value: number): Handle;
  qjs_new_string(bytes: number, length: number): Handle;
  qjs_new_array(): Handle;
  qjs_new_object(): Handle;
  qjs_set_prop_uint32(object: Handle, index: number, value: Handle): number;
  qjs_define_prop_value(object: Handle, key: Handle, value: Handle, flags: number): number;
  qjs_get_prop_uint32(object: Handle, index: number): Handle;
  qjs_get_prop_string(object: Handle, name: number): Handle;
  qjs_get_own_property_keys(object: Handle): Handle;
  qjs_get_own_property_descriptor(object: Handle, key: Handle): Handle;
  qjs_has_own_property(object: Handle, name: number): number;
  qjs_get_prototype_of(object: Handle): Handle;
  qjs_get_value_ptr(object: Handle): number;
  qjs_get_class_id(value: Handle): number;
  qjs_get_class_name(value: Handle): Handle;
  qjs_get_float64(value: Handle): number;
  qjs_get_bool(value: Handle): number;
  qjs_get_string_len(value: Handle, lengthOut: number): number;
  qjs_free_cstring(bytes: number): void;
  qjs_free_value(value: Handle): void;
  qjs_is_undefined(value: Handle): number;
  qjs_is_null(value: Handle): number;
  qjs_is_bool(value: Handle): number;
  qjs_is_number(value: Handle): number;
  qjs_is_string(value: Handle): number;
  qjs_is_symbol(value: Handle): number;
  qjs_is_big_int(value: Handle): number;
  qjs_is_proxy(value: Handle): number;
  qjs_is_array(value: Handle): number;
  qjs_is_function(value: Handle): number;
  wasm_malloc(bytes: number): number;
  wasm_free(pointer: number): void;
}
