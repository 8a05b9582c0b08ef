// Models of Ollama: its folder, registries, content that is cut or wrong.
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { pullModel } from 'dgx-spark'
import t from 'tap'
import { setVariables, sha256 } from '../fixtures/hub/hub-server.js'
import { manifestOf, serveRegistry } from '../fixtures/hub/registry.js'
import { sendFile } from '../fixtures/hub/server.js'

const model = Buffer.from(`GGUF${'x'.repeat(99_997)}`)
const layers = { model, params: Buffer.from('{"stop":["a"]}'), license: Buffer.from('free') }

t.test('a model is pulled into the folder of Ollama, and read there', async t => {
  const { registry, storage, store } = await serveRegistry(t, { 'library/tiny/latest': layers })
  const name = `ollama:${registry.host}/library/tiny`
  await t.rejects(pullModel(name, { offline: true }), { code: 'ERR_IO', message: /is not in .*offline/ })
  const result = await pullModel(name)
  t.equal(result.path, path.join(store, 'blobs', `sha256-${sha256(model)}`))
  t.ok(readFileSync(result.path).equals(model))
  t.match(result, { format: 'gguf', isOffline: false, downloadedBytes: model.length + 14 + 4 + 2 })
  t.strictSame(
    result.files.map(({ name }) => name),
    ['model', 'params', 'license', 'config'],
  )
  const file = path.join(store, 'manifests', registry.host, 'library', 'tiny', 'latest')
  t.strictSame(JSON.parse(readFileSync(file, 'utf8')), manifestOf(layers))
  t.equal(readdirSync(path.join(store, 'blobs')).length, 4, 'nothing else is left')

  const [manifests, blobs] = [registry.seen.length, storage.seen.length]
  t.match(await pullModel(name), { path: result.path, isOffline: true })
  t.equal(registry.seen.length, manifests, 'read in place')
  t.match(await pullModel(name, { update: true }), { downloadedBytes: 0, isOffline: false })
  t.equal(registry.seen.length, manifests + 1)
  t.equal(storage.seen.length, blobs)
  registry.close()
  t.match(await pullModel(name, { update: true }), { path: result.path, isOffline: true })
})

t.test('a model that Ollama made here is in no registry', async t => {
  const { registry, store } = await serveRegistry(t, {})
  const folder = path.join(store, 'manifests', registry.host, 'me', 'mine')
  mkdirSync(folder, { recursive: true })
  mkdirSync(path.join(store, 'blobs'))
  writeFileSync(path.join(folder, 'v1'), JSON.stringify(manifestOf({ model })))
  for (const bytes of [model, Buffer.from('{}')])
    writeFileSync(path.join(store, 'blobs', `sha256-${sha256(bytes)}`), bytes)
  const name = `ollama:${registry.host}/me/mine:v1`
  for (const update of [false, true]) t.match(await pullModel(name, { update }), { isOffline: true })
  await t.rejects(pullModel(`ollama:${registry.host}/me/mini:v1`), {
    code: 'ERR_IO',
    message: /has no model 'mini' with the tag 'v1' \(did you mean 'ollama:.*\/me\/mine:v1'\?\)/,
  })
})

t.test('a registry that asks for a token', async t => {
  const { registry, storage } = await serveRegistry(t, { 'org/model/Q4_K_M': layers }, { isClosed: true })
  await pullModel(`ollama:${registry.host}/org/model:Q4_K_M`)
  t.ok(registry.seen.some(({ authorization }) => authorization === 'Bearer given'))
  t.ok(storage.seen.length > 0 && storage.seen.every(({ authorization }) => authorization === undefined))
})

t.test('content that is cut, and content that is wrong', async t => {
  let isWrong = false
  const { registry, storage, store } = await serveRegistry(
    t,
    { 'library/tiny/latest': layers },
    {
      answer(request, response, attempt) {
        if (request.url !== `/${sha256(model)}`) return false
        const bytes = isWrong ? Buffer.from(model).fill(1, 9) : model
        sendFile(request, response, bytes, attempt === 0 ? { cut: 40_000 } : {})
        return true
      },
    },
  )
  const name = `ollama:${registry.host}/library/tiny`
  t.ok(readFileSync((await pullModel(name)).path).equals(model))
  t.ok(storage.seen.some(({ range }) => range === 'bytes=40000-'))
  const other = path.join(store, 'other')
  setVariables(t, { OLLAMA_MODELS: other })
  isWrong = true
  await t.rejects(pullModel(name), { code: 'ERR_FORMAT', message: /has SHA-256 .*it was removed/ })
  t.equal(existsSync(path.join(other, 'manifests')), false, 'no manifest without its content')
})

t.test('manifests that are none', async t => {
  const hash = sha256(model)
  const bad = [
    ['no JSON', '{'],
    ['no layers', '{}'],
    ['a path', JSON.stringify({ layers: [{ mediaType: 'x', digest: 'sha256:../../x', size: 1 }] })],
    ['a size', JSON.stringify({ layers: [{ mediaType: 'x', digest: `sha256:${hash}`, size: -1 }] })],
  ] as const
  for (const [what, text] of bad) {
    const { registry, store } = await serveRegistry(t, {})
    const folder = path.join(store, 'manifests', registry.host, 'library', 'tiny')
    mkdirSync(folder, { recursive: true })
    writeFileSync(path.join(folder, 'latest'), text)
    await t.rejects(
      pullModel(`ollama:${registry.host}/library/tiny`, { offline: true }),
      { code: 'ERR_IO' },
      what,
    )
  }
  const { registry } = await serveRegistry(t, { 'library/mlx/latest': { tensor: model } })
  await t.rejects(pullModel(`ollama:${registry.host}/library/mlx`), {
    code: 'ERR_UNSUPPORTED',
    message: /has no GGUF file, but tensor, config/,
  })
})
