// A language engine for faasw: Lua 5.4 as a component.
//
// Its life has three parts. When the component is instantiated, `begin` makes a Lua state:
// that is what all scripts share. `init` runs a script's first file, once, when it is
// deployed; what that returns is the handler. `handle` calls it, in a fork, once.

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "lauxlib.h"
#include "lua.h"
#include "lualib.h"

static lua_State *L;

// Keys of the registry.
static const char FILES[] = "faasw.files";
static const char HANDLER[] = "faasw.handler";

// ---- randomness

// Lua asks for this (LUAI_MAKESEED) when a state is made and when math is opened.
unsigned int engine_seed(void) {
  engine_tuple4_u64_u64_u64_u64_t fresh;
  faasw_engine_fresh_seed(&fresh);
  return (unsigned int)fresh.f0;
}

// Whatever was seeded before the fork is everybody's: seed it anew.
static void reseed(void) {
  engine_tuple4_u64_u64_u64_u64_t fresh;
  faasw_engine_fresh_seed(&fresh);
  lua_getglobal(L, "math");
  lua_getfield(L, -1, "randomseed");
  if (lua_isfunction(L, -1)) {
    lua_pushinteger(L, (lua_Integer)fresh.f0);
    lua_pushinteger(L, (lua_Integer)fresh.f1);
    if (lua_pcall(L, 2, 0, 0) != LUA_OK) lua_pop(L, 1);
  } else {
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
}

// random(n): n bytes of the cryptographic kind.
static int lua_random(lua_State *l) {
  lua_Integer count = luaL_checkinteger(l, 1);
  luaL_argcheck(l, count >= 0 && count <= 1 << 20, 1, "0 to 1048576 bytes");
  engine_list_u8_t bytes;
  wasi_random_random_get_random_bytes((uint64_t)count, &bytes);
  lua_pushlstring(l, (const char *)bytes.ptr, bytes.len);
  engine_list_u8_free(&bytes);
  return 1;
}

// ---- files of the script

// Loads the file on the top of the stack under its path, which is what errors name.
static int load_file(lua_State *l, const char *path) {
  size_t size;
  const char *text = lua_tolstring(l, -1, &size);
  lua_pushfstring(l, "@%s", path);
  int status = luaL_loadbufferx(l, text, size, lua_tostring(l, -1), "t");
  lua_remove(l, -2);
  return status;
}

// A searcher for `require`: a.b is a/b.lua or a/b/init.lua.
static int search(lua_State *l) {
  const char *name = luaL_checkstring(l, 1);
  const char *base = luaL_gsub(l, name, ".", "/");
  const char *forms[] = {"%s.lua", "%s/init.lua"};
  lua_getfield(l, LUA_REGISTRYINDEX, FILES);
  int files = lua_gettop(l);
  for (int i = 0; i < 2; i++) {
    const char *path = lua_pushfstring(l, forms[i], base);
    lua_pushvalue(l, -1);
    if (lua_rawget(l, files) != LUA_TSTRING) {
      lua_pop(l, 2);
      continue;
    }
    if (load_file(l, path) != LUA_OK) return lua_error(l);
    lua_pushstring(l, path);
    return 2;
  }
  lua_pushfstring(l, "no file '%s.lua' or '%s/init.lua' in the script", base, base);
  return 1;
}

// file(path): what a file of the script has, or nil.
static int lua_file(lua_State *l) {
  luaL_checkstring(l, 1);
  lua_getfield(l, LUA_REGISTRYINDEX, FILES);
  lua_pushvalue(l, 1);
  lua_rawget(l, -2);
  return 1;
}

// ---- environment

// os.getenv(name). Not the C library's, which keeps what it read first: that was the engine's
// own environment, before it had a script.
static int lua_getenv(lua_State *l) {
  size_t length;
  const char *name = luaL_checklstring(l, 1, &length);
  engine_list_tuple2_string_string_t variables;
  wasi_cli_environment_get_environment(&variables);
  lua_pushnil(l);
  for (size_t i = 0; i < variables.len; i++) {
    engine_string_t *other = &variables.ptr[i].f0;
    if (other->len == length && memcmp(other->ptr, name, length) == 0) {
      engine_string_t *value = &variables.ptr[i].f1;
      lua_pushlstring(l, (const char *)value->ptr, value->len);
    }
  }
  engine_list_tuple2_string_string_free(&variables);
  return 1;
}

// ---- the state that all scripts share

static void forget(const char *library, const char *name) {
  lua_getglobal(L, library);
  lua_pushnil(L);
  lua_setfield(L, -2, name);
  lua_pop(L, 1);
}

__attribute__((constructor)) static void begin(void) {
  static const luaL_Reg libraries[] = {
      {LUA_GNAME, luaopen_base},          {LUA_LOADLIBNAME, luaopen_package},
      {LUA_COLIBNAME, luaopen_coroutine}, {LUA_TABLIBNAME, luaopen_table},
      {LUA_OSLIBNAME, luaopen_os},        {LUA_STRLIBNAME, luaopen_string},
      {LUA_MATHLIBNAME, luaopen_math},    {LUA_UTF8LIBNAME, luaopen_utf8},
      {LUA_DBLIBNAME, luaopen_debug},
  };
  L = luaL_newstate();
  if (L == NULL) abort();
  // Nothing is collected before a request: a collection writes to pages that all share.
  lua_gc(L, LUA_GCSTOP);
  for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++) {
    luaL_requiref(L, libraries[i].name, libraries[i].func, 1);
    lua_pop(L, 1);
  }
  // There are no files and no processes.
  static const char *const absent[] = {"clock",  "execute",   "exit",   "remove",
                                      "rename", "setlocale", "tmpname"};
  for (size_t i = 0; i < sizeof absent / sizeof *absent; i++) forget("os", absent[i]);
  lua_pushnil(L);
  lua_setglobal(L, "dofile");
  lua_pushnil(L);
  lua_setglobal(L, "loadfile");
  lua_getglobal(L, "os");
  lua_pushcfunction(L, lua_getenv);
  lua_setfield(L, -2, "getenv");
  lua_pop(L, 1);
  lua_register(L, "random", lua_random);
  lua_register(L, "file", lua_file);
  lua_getglobal(L, "package");
  lua_createtable(L, 1, 0);
  lua_getfield(L, -2, "searchers");
  lua_rawgeti(L, -1, 1);
  lua_rawseti(L, -3, 1);
  lua_pop(L, 1);
  lua_pushcfunction(L, search);
  lua_rawseti(L, -2, 2);
  lua_setfield(L, -2, "searchers");
  lua_pop(L, 1);
  // Room for requests: memory that one grows is no part of what is forked ahead.
  free(malloc(512 << 10));
}

// ---- errors

// A message handler: { message, traceback }.
static int trace(lua_State *l) {
  const char *message = luaL_tolstring(l, 1, NULL);
  lua_createtable(l, 2, 0);
  lua_pushstring(l, message);
  lua_rawseti(l, -2, 1);
  luaL_traceback(l, l, NULL, 1);
  lua_rawseti(l, -2, 2);
  return 1;
}

static void give_string(engine_string_t *to, const char *text, size_t length) {
  to->ptr = malloc(length == 0 ? 1 : length);
  if (to->ptr == NULL) abort();
  memcpy(to->ptr, text, length);
  to->len = length;
}

// Takes "path:line: message" apart. The traceback's first line is a heading.
static bool tell(exports_faasw_engine_script_error_t *error, const char *message,
                 const char *stack) {
  memset(error, 0, sizeof *error);
  const char *colon = strchr(message, ':');
  char *end = NULL;
  unsigned long line = colon != NULL ? strtoul(colon + 1, &end, 10) : 0;
  if (line > 0 && line <= UINT32_MAX && end[0] == ':' && end[1] == ' ') {
    error->file.is_some = true;
    give_string(&error->file.val, message, (size_t)(colon - message));
    error->line.is_some = true;
    error->line.val = (uint32_t)line;
    message = end + 2;
  }
  give_string(&error->message, message, strlen(message));
  const char *frames = strchr(stack, '\n');
  frames = frames != NULL ? frames + 1 : "";
  give_string(&error->stack, frames, strlen(frames));
  return false;
}

// ---- faasw:engine/script

bool exports_faasw_engine_script_init(engine_list_tuple2_string_list_u8_t *files,
                                      exports_faasw_engine_script_error_t *error) {
  // Other scripts begin with the same engine.
  reseed();
  lua_settop(L, 0);
  lua_createtable(L, 0, (int)files->len);
  for (size_t i = 0; i < files->len; i++) {
    engine_tuple2_string_list_u8_t *file = &files->ptr[i];
    lua_pushlstring(L, (const char *)file->f0.ptr, file->f0.len);
    lua_pushlstring(L, (const char *)file->f1.ptr, file->f1.len);
    lua_rawset(L, -3);
  }
  lua_setfield(L, LUA_REGISTRYINDEX, FILES);
  if (files->len == 0) return tell(error, "the script has no files", "");
  const char *path = lua_pushlstring(L, (const char *)files->ptr[0].f0.ptr, files->ptr[0].f0.len);
  lua_pushlstring(L, (const char *)files->ptr[0].f1.ptr, files->ptr[0].f1.len);
  engine_list_tuple2_string_list_u8_free(files);
  if (load_file(L, path) != LUA_OK) return tell(error, lua_tostring(L, -1), "");
  lua_pushcfunction(L, trace);
  lua_insert(L, -2);
  if (lua_pcall(L, 0, 1, -2) != LUA_OK) {
    if (!lua_istable(L, -1)) return tell(error, lua_tostring(L, -1), "");
    lua_rawgeti(L, -1, 1);
    lua_rawgeti(L, -2, 2);
    return tell(error, lua_tostring(L, -2), lua_tostring(L, -1));
  }
  if (!lua_isfunction(L, -1)) {
    lua_pushfstring(L, "%s does not return a function that handles requests, but a %s", path,
                    luaL_typename(L, -1));
    return tell(error, lua_tostring(L, -1), "");
  }
  lua_setfield(L, LUA_REGISTRYINDEX, HANDLER);
  lua_settop(L, 0);
  return true;
}

// ---- wasi:http/incoming-handler

static void push_method(wasi_http_types_borrow_incoming_request_t request) {
  static const char *const names[] = {"GET",     "HEAD",    "POST",  "PUT",  "DELETE",
                                      "CONNECT", "OPTIONS", "TRACE", "PATCH"};
  wasi_http_types_method_t method;
  wasi_http_types_method_incoming_request_method(request, &method);
  if (method.tag < sizeof names / sizeof *names) {
    lua_pushstring(L, names[method.tag]);
  } else {
    lua_pushlstring(L, (const char *)method.val.other.ptr, method.val.other.len);
  }
  wasi_http_types_method_free(&method);
}

static void push_headers(wasi_http_types_borrow_incoming_request_t request) {
  wasi_http_types_own_headers_t headers = wasi_http_types_method_incoming_request_headers(request);
  wasi_http_types_list_tuple2_field_name_field_value_t entries;
  wasi_http_types_method_fields_entries(wasi_http_types_borrow_fields(headers), &entries);
  lua_createtable(L, 0, (int)entries.len);
  for (size_t i = 0; i < entries.len; i++) {
    const char *value = (const char *)entries.ptr[i].f1.ptr;
    lua_pushlstring(L, (const char *)entries.ptr[i].f0.ptr, entries.ptr[i].f0.len);
    lua_pushvalue(L, -1);
    if (lua_rawget(L, -3) == LUA_TSTRING) {
      lua_pushliteral(L, ", ");
      lua_pushlstring(L, value, entries.ptr[i].f1.len);
      lua_concat(L, 3);
    } else {
      lua_pop(L, 1);
      lua_pushlstring(L, value, entries.ptr[i].f1.len);
    }
    lua_rawset(L, -3);
  }
  wasi_http_types_list_tuple2_field_name_field_value_free(&entries);
  wasi_http_types_fields_drop_own(headers);
}

static void push_body(wasi_http_types_borrow_incoming_request_t request) {
  luaL_Buffer text;
  luaL_buffinit(L, &text);
  wasi_http_types_own_incoming_body_t body;
  wasi_http_types_own_input_stream_t stream;
  if (wasi_http_types_method_incoming_request_consume(request, &body)) {
    if (wasi_http_types_method_incoming_body_stream(wasi_http_types_borrow_incoming_body(body),
                                                    &stream)) {
      wasi_io_streams_borrow_input_stream_t from = wasi_io_streams_borrow_input_stream(stream);
      engine_list_u8_t piece;
      wasi_io_streams_stream_error_t closed;
      while (wasi_io_streams_method_input_stream_blocking_read(from, 64 << 10, &piece, &closed)) {
        luaL_addlstring(&text, (const char *)piece.ptr, piece.len);
        engine_list_u8_free(&piece);
      }
      wasi_io_streams_stream_error_free(&closed);
      wasi_io_streams_input_stream_drop_own(stream);
    }
    wasi_http_types_incoming_body_drop_own(body);
  }
  luaL_pushresult(&text);
}

// The request as a table.
static void push_request(wasi_http_types_borrow_incoming_request_t request) {
  lua_createtable(L, 0, 5);
  push_method(request);
  lua_setfield(L, -2, "method");
  engine_string_t target;
  if (wasi_http_types_method_incoming_request_path_with_query(request, &target)) {
    const char *text = (const char *)target.ptr;
    const char *mark = memchr(text, '?', target.len);
    size_t length = mark != NULL ? (size_t)(mark - text) : target.len;
    lua_pushlstring(L, text, length);
    lua_setfield(L, -2, "path");
    if (mark != NULL) {
      lua_pushlstring(L, mark + 1, target.len - length - 1);
      lua_setfield(L, -2, "query");
    }
    engine_string_free(&target);
  }
  push_headers(request);
  lua_setfield(L, -2, "headers");
  push_body(request);
  lua_setfield(L, -2, "body");
}

// Adds what a table of fields has to `fields`; a value may be a list of values.
static void add_field(lua_State *l, wasi_http_types_borrow_fields_t fields, int name, int value) {
  size_t name_length, value_length;
  const char *name_text = lua_tolstring(l, name, &name_length);
  const char *value_text = lua_tolstring(l, value, &value_length);
  engine_string_t field = {(uint8_t *)name_text, name_length};
  wasi_http_types_field_value_t content = {(uint8_t *)value_text, value_length};
  wasi_http_types_header_error_t error;
  if (!wasi_http_types_method_fields_append(fields, &field, &content, &error)) {
    luaL_error(l, "'%s' is no header field that a response can have", name_text);
  }
}

static void add_fields(lua_State *l, wasi_http_types_borrow_fields_t fields, int table) {
  lua_pushnil(l);
  while (lua_next(l, table) != 0) {
    int value = lua_gettop(l);
    if (lua_type(l, value - 1) != LUA_TSTRING) luaL_error(l, "a header field's name is no string");
    if (lua_istable(l, value)) {
      for (lua_Integer i = 1; lua_rawgeti(l, value, i) != LUA_TNIL; i++) {
        luaL_tolstring(l, -1, NULL);
        add_field(l, fields, value - 1, lua_gettop(l));
        lua_settop(l, value);
      }
    } else {
      luaL_tolstring(l, value, NULL);
      add_field(l, fields, value - 1, lua_gettop(l));
    }
    lua_settop(l, value - 1);
  }
}

// Calls the handler with the request below it, and makes of what it returns: status, header
// fields, body.
static int answer(lua_State *l) {
  lua_getfield(l, LUA_REGISTRYINDEX, HANDLER);
  lua_pushvalue(l, 1);
  lua_call(l, 1, 1);
  wasi_http_types_own_fields_t fields = wasi_http_types_constructor_fields();
  wasi_http_types_borrow_fields_t borrowed = wasi_http_types_borrow_fields(fields);
  lua_Integer status = 200;
  if (lua_istable(l, 2)) {
    if (lua_getfield(l, 2, "status") != LUA_TNIL) {
      int is_number;
      status = lua_tointegerx(l, -1, &is_number);
      if (!is_number || status < 200 || status > 999) {
        luaL_error(l, "a response's status is a number from 200 to 999");
      }
    }
    if (lua_getfield(l, 2, "headers") == LUA_TTABLE) add_fields(l, borrowed, lua_gettop(l));
    lua_getfield(l, 2, "body");
  } else {
    lua_pushvalue(l, 2);
  }
  if (!lua_isnil(l, -1) && !lua_isstring(l, -1)) {
    luaL_error(l, "a handler returns a string, or a table whose body is one, not a %s",
               luaL_typename(l, -1));
  }
  lua_tostring(l, -1);
  lua_replace(l, 1);
  lua_settop(l, 1);
  lua_pushinteger(l, status);
  lua_pushinteger(l, fields.__handle);
  return 3;
}

static void write_all(wasi_http_types_own_output_stream_t stream, const char *text, size_t left) {
  wasi_io_streams_borrow_output_stream_t to = wasi_io_streams_borrow_output_stream(stream);
  wasi_io_streams_stream_error_t closed;
  while (left > 0) {
    uint64_t room = 0;
    if (!wasi_io_streams_method_output_stream_check_write(to, &room, &closed)) return;
    if (room == 0) {
      wasi_io_streams_own_pollable_t pollable =
          wasi_io_streams_method_output_stream_subscribe(to);
      wasi_io_poll_method_pollable_block(wasi_io_poll_borrow_pollable(pollable));
      wasi_io_poll_pollable_drop_own(pollable);
      continue;
    }
    size_t now = room < left ? (size_t)room : left;
    engine_list_u8_t piece = {(uint8_t *)text, now};
    if (!wasi_io_streams_method_output_stream_write(to, &piece, &closed)) return;
    text += now;
    left -= now;
  }
}

static void respond(wasi_http_types_own_response_outparam_t out, wasi_http_types_own_fields_t fields,
                    uint16_t status, const char *text, size_t length) {
  wasi_http_types_own_outgoing_response_t response =
      wasi_http_types_constructor_outgoing_response(fields);
  wasi_http_types_borrow_outgoing_response_t borrowed =
      wasi_http_types_borrow_outgoing_response(response);
  wasi_http_types_method_outgoing_response_set_status_code(borrowed, status);
  wasi_http_types_own_outgoing_body_t body;
  wasi_http_types_method_outgoing_response_body(borrowed, &body);
  wasi_http_types_result_own_outgoing_response_error_code_t result = {.is_err = false};
  result.val.ok = response;
  wasi_http_types_static_response_outparam_set(out, &result);
  wasi_http_types_own_output_stream_t stream;
  if (wasi_http_types_method_outgoing_body_write(wasi_http_types_borrow_outgoing_body(body),
                                                 &stream)) {
    write_all(stream, text, length);
    wasi_io_streams_output_stream_drop_own(stream);
  }
  wasi_http_types_error_code_t error;
  wasi_http_types_static_outgoing_body_finish(body, NULL, &error);
}

// There is no response: the node answers for the function.
static void fail(wasi_http_types_own_response_outparam_t out, const char *message) {
  wasi_http_types_result_own_outgoing_response_error_code_t result = {.is_err = true};
  result.val.err.tag = WASI_HTTP_TYPES_ERROR_CODE_INTERNAL_ERROR;
  result.val.err.val.internal_error.is_some = true;
  result.val.err.val.internal_error.val = (engine_string_t){(uint8_t *)message, strlen(message)};
  wasi_http_types_static_response_outparam_set(out, &result);
}

void exports_wasi_http_incoming_handler_handle(
    exports_wasi_http_incoming_handler_own_incoming_request_t request,
    exports_wasi_http_incoming_handler_own_response_outparam_t out) {
  reseed();
  lua_gc(L, LUA_GCRESTART);
  lua_pushcfunction(L, trace);
  lua_pushcfunction(L, answer);
  push_request(wasi_http_types_borrow_incoming_request(request));
  if (lua_pcall(L, 1, 3, 1) == LUA_OK) {
    wasi_http_types_own_fields_t fields = {(int32_t)lua_tointeger(L, -1)};
    uint16_t status = (uint16_t)lua_tointeger(L, -2);
    size_t length = 0;
    const char *body = lua_tolstring(L, -3, &length);
    respond(out, fields, status, body, length);
    return;
  }
  const char *message = lua_tostring(L, -1);
  if (lua_istable(L, -1)) {
    lua_rawgeti(L, -1, 1);
    lua_rawgeti(L, -2, 2);
    message = lua_tostring(L, -2);
    fprintf(stderr, "%s\n%s\n", message, lua_tostring(L, -1));
  } else {
    fprintf(stderr, "%s\n", message);
  }
  fail(out, message);
}

// The exception that longjmp throws, which the toolchain leaves to the program to define.
__asm__(".globl __c_longjmp\n"
        ".tagtype __c_longjmp i32\n"
        "__c_longjmp:\n");
