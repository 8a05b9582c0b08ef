// Where a model comes from: bytes of all kinds, URLs, and files beside it.
import { once } from 'node:events'
import { readFileSync, writeFileSync } from 'node:fs'
import { createServer, type RequestListener } from 'node:http'
import type { AddressInfo } from 'node:net'
import path from 'node:path'
import { pathToFileURL } from 'node:url'
import { Model } from 'dgx-spark'
import t, { type Test } from 'tap'
import { Constant } from '#lib/graph/constant.js'
import { makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { writeOnnx } from '#lib/io/onnx/save.js'
import { serializeOnnx } from '#lib/io/onnx/write.js'

/** y = x + w, w of 512 elements, enough for a file of its own. */
const graph = makeGraph({
  inputs: [{ name: 'x', type: tensorType('f32', [512]) }],
  outputs: [{ name: 'y' }],
  nodes: [makeNode('Add', ['x', 'w'], ['y'])],
  initializers: new Map([['w', Constant.f32(Array.from({ length: 512 }, (_, i) => i))]]),
})

async function adds(t: Test, model: Model, label: string): Promise<void> {
  const { y } = await model.run({ x: new Float32Array(512).fill(1) })
  t.equal(y!.data[511], 512, label)
  model.dispose()
}

/** The address of a server on this machine, closed after the test. */
async function serve(t: Test, answer: RequestListener): Promise<string> {
  const server = createServer(answer).listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => {
    server.closeAllConnections()
    server.close()
  })
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}

t.test('bytes', async t => {
  const bytes = (): Uint8Array => new Uint8Array(serializeOnnx(graph))
  await adds(t, await Model.load(bytes()), 'a Uint8Array')
  await adds(t, await Model.load(bytes().buffer as ArrayBuffer), 'an ArrayBuffer')
  await adds(t, await Model.load(Buffer.from(bytes())), 'a Buffer')
  const view = new DataView(bytes().buffer)
  await adds(t, await Model.load(view as never), 'a view')
  await t.rejects(Model.load({} as never), {
    code: 'ERR_ARGUMENT',
    message: /a path, a file:, http: or https: URL, or the bytes/,
  })
  await t.rejects(Model.load('' as never), { code: 'ERR_ARGUMENT' })
})

t.test('files beside a model', async t => {
  const file = path.join(t.testdir(), 'model.onnx')
  await writeOnnx(graph, file, { externalData: true })
  await adds(t, await Model.load(file), 'a path')
  await adds(t, await Model.load(pathToFileURL(file)), 'a file URL')
  await adds(t, await Model.load(String(pathToFileURL(file))), 'the text of one')
  const bytes = readFileSync(file)
  await t.rejects(Model.load(bytes), {
    code: 'ERR_FORMAT',
    message: /give externalData: \{ 'model\.onnx\.data': bytes \}/,
  })
  const data = readFileSync(`${file}.data`)
  await adds(t, await Model.load(bytes, { externalData: { 'model.onnx.data': data } }), 'given')
  writeFileSync(`${file}.data`, 'broken')
  await adds(t, await Model.load(file, { externalData: { 'model.onnx.data': data } }), 'given for a path')
  await t.rejects(Model.load(bytes, { externalData: { 'model.onnx.data': data.subarray(8) } }), {
    code: 'ERR_FORMAT',
    message: /truncated/,
  })
  await t.rejects(Model.load(bytes, { externalData: { 'model.onnx.data': 'x' } as never }), {
    code: 'ERR_ARGUMENT',
    message: /options\.externalData\['model\.onnx\.data'\]/,
  })
})

t.test('downloads', async t => {
  const bytes = serializeOnnx(graph)
  const base = await serve(t, ({ url = '' }, response) => {
    const name = new URL(url, 'http://x').pathname
    if (name === '/model.onnx') response.end(bytes)
    else if (name === '/moved.onnx') response.writeHead(302, { location: '/model.onnx' }).end()
    else if (name === '/short.onnx') {
      response.writeHead(200, { 'content-length': bytes.length })
      response.write(bytes.subarray(0, 100), () => response.destroy())
    } else if (name === '/endless.onnx') {
      const timer = setInterval(() => response.write(Buffer.alloc(1000)), 1)
      response.on('close', () => clearInterval(timer))
    } else if (name === '/page.onnx') response.end('<!doctype html>')
    else if (name !== '/silent.onnx') response.writeHead(404).end('no such file')
  })
  await adds(t, await Model.load(`${base}/model.onnx`), 'text')
  await adds(t, await Model.load(new URL(`${base}/moved.onnx?token=secret`)), 'a URL, redirected')
  const refused = (name: string, message: RegExp, options = {}): Promise<unknown> =>
    t.rejects(Model.load(`${base}/${name}`, options), { code: 'ERR_IO', message })
  await refused('none.onnx?token=secret', /none\.onnx: the server answered 404 Not Found$/)
  await refused('short.onnx', /could not download .*short\.onnx: /)
  await refused('model.onnx', /it has \d+ bytes or more, and maxBytes is 100/, { maxBytes: 100 })
  await refused('endless.onnx', /it has \d+ bytes or more, and maxBytes is 5000/, { maxBytes: 5000 })
  await t.rejects(Model.load(`${base}/page.onnx`), { code: 'ERR_FORMAT', message: /page\.onnx/ })
  const reason = new Error('enough')
  for (const name of ['silent.onnx', 'endless.onnx']) {
    const abort = new AbortController()
    setTimeout(() => abort.abort(reason), 20)
    await t.rejects(Model.load(`${base}/${name}`, { signal: abort.signal }), reason, name)
  }
  await t.rejects(Model.load('http://127.0.0.1:1/model.onnx'), {
    code: 'ERR_IO',
    message: /127\.0\.0\.1:1\/model\.onnx: /,
  })
  await t.rejects(Model.load('https://'), { code: 'ERR_ARGUMENT' })
  await t.rejects(Model.load(new URL('ftp://x/model.onnx')), { code: 'ERR_ARGUMENT' })
  await t.rejects(Model.load(`${base}/model.onnx`, { maxBytes: 0 }), { code: 'ERR_ARGUMENT' })
})
