// Hubs that lie, refuse and fail: nothing is written outside of the cache, nothing hangs.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import type { ServerResponse } from 'node:http'
import path from 'node:path'
import { pullModel } from 'dgx-spark'
import t, { type Test } from 'tap'
import { askedWait } from '#lib/hub/retry.js'
import { commit, type FakeHub, type HubOptions, serveHub, sha256 } from '../fixtures/hub/hub-server.js'
import { sendFile } from '../fixtures/hub/server.js'

const gguf = Buffer.from(`GGUF${'x'.repeat(150_000)}`)
const repositories = { 'org/m': { 'm-Q4_K_M.gguf': gguf } }
const json = (response: ServerResponse, value: unknown, headers = {}): true => {
  response.writeHead(200, headers).end(JSON.stringify(value))
  return true
}

/** A hub whose listing is `entries`. */
const listing = (t: Test, entries: readonly unknown[]): Promise<FakeHub> =>
  serveHub(t, repositories, {
    answer: ({ url }, response) => url!.includes('/tree/') && json(response, entries),
  })

const entry = {
  type: 'file',
  path: 'm.gguf',
  size: gguf.length,
  lfs: { oid: sha256(gguf), size: gguf.length },
}

t.test('names that lead elsewhere', async t => {
  for (const name of [
    '../../../../m.gguf',
    '/m.gguf',
    'a/../../m.gguf',
    'a\\..\\m.gguf',
    'a//m.gguf',
    './m.gguf',
  ]) {
    const { home } = await listing(t, [{ ...entry, path: name }])
    await t.rejects(
      pullModel('hf:org/m'),
      { code: 'ERR_FORMAT', message: /a file that no folder can have/ },
      name,
    )
    t.strictSame(readdirSync(home), [], 'nothing was written')
  }
})

t.test('listings that are none', async t => {
  const refused = async (entries: readonly unknown[], message: RegExp): Promise<void> => {
    await listing(t, entries)
    await t.rejects(pullModel('hf:org/m'), { code: 'ERR_FORMAT', message })
  }
  await refused([{ ...entry, lfs: { oid: '../../x', size: 1 } }], /no valid hash of m\.gguf/)
  await refused([{ ...entry, lfs: { oid: sha256(gguf), size: -1 } }], /no valid size of m\.gguf/)
  await refused([{ ...entry, lfs: { oid: sha256(gguf), size: 1e300 } }], /no valid size/)
  await refused([{ ...entry, path: 7 }], /no valid path/)
  for (const [answer, message] of [
    [{ sha: '../..' }, /no valid sha/],
    [null, /no valid sha/],
  ] as const) {
    await serveHub(t, repositories, { answer: (_, response) => json(response, answer) })
    await t.rejects(pullModel('hf:org/m'), { code: 'ERR_FORMAT', message })
  }
  await serveHub(t, repositories, {
    answer({ url }, response) {
      return (
        url!.includes('/tree/') && json(response, [], { link: '<https://evil.example/next>; rel="next"' })
      )
    },
  })
  await t.rejects(pullModel('hf:org/m'), { code: 'ERR_FORMAT', message: /evil\.example is another server/ })
  await serveHub(t, repositories, { answer: (_, response) => !!response.writeHead(200).end('<html>') })
  await t.rejects(pullModel('hf:org/m'), { code: 'ERR_FORMAT', message: /no JSON/ })
})

t.test('sizes that are wrong', async t => {
  const { home } = await listing(t, [
    { ...entry, path: 'm-Q4_K_M.gguf', lfs: { oid: sha256(gguf), size: 2 ** 52 } },
  ])
  await t.rejects(pullModel('hf:org/m'), {
    code: 'ERR_IO',
    message: /bytes are to be downloaded, and the disk has/,
  })
  t.strictSame(readdirSync(path.join(home, 'hub/models--org--m/blobs')), [])
  const wrong = { ...entry, path: 'm-Q4_K_M.gguf', lfs: { oid: sha256(gguf), size: 1000 } }
  await listing(t, [wrong])
  await t.rejects(pullModel('hf:org/m'), {
    code: 'ERR_IO',
    message: /has 150004 bytes, but 1000 were announced/,
  })
  await serveHub(t, repositories, {
    answer: ({ url }, response) => url!.includes('/tree/') && json(response, [wrong]),
    cdnAnswer: (_, response) => !!response.writeHead(200).end(gguf), // chunked: no length
  })
  await t.rejects(pullModel('hf:org/m'), { code: 'ERR_IO', message: /1000/ })
})

t.test('other content, also where it changes on the way', async t => {
  const other = Buffer.from(gguf).fill(1, 9)
  const serveContent = (cdnAnswer: NonNullable<HubOptions['cdnAnswer']>): Promise<FakeHub> =>
    serveHub(t, repositories, { cdnAnswer })
  const { home } = await serveContent((request, response) => {
    sendFile(request, response, other)
    return true
  })
  await t.rejects(pullModel('hf:org/m'), { code: 'ERR_FORMAT', message: /has SHA-256/ })
  t.strictSame(readdirSync(path.join(home, 'hub/models--org--m/blobs')), [])
  t.equal(existsSync(path.join(home, 'hub/models--org--m/refs')), false)
  const { cdn } = await serveContent((request, response, attempt) => {
    if (attempt === 0) sendFile(request, response, other, { etag: '"other"', cut: 60_000 })
    else sendFile(request, response, gguf)
    return true
  })
  const { path: file } = await pullModel('hf:org/m')
  t.ok(readFileSync(file).equals(gguf))
  t.strictSame(
    cdn.seen.map(({ range }) => range),
    [undefined, 'bytes=60000-', undefined],
    'the pieces do not fit, so it is downloaded once more',
  )
})

t.test('redirects', async t => {
  const elsewhere = 'https://evil.example/api'
  for (const [location, message] of [
    [elsewhere, /leads to https:\/\/evil\.example\/api, another server/],
    ['/api/models/org/m/revision/main', /leads to other addresses more than 10 times/],
  ] as const) {
    await serveHub(t, repositories, {
      answer: (_, response) => !!response.writeHead(307, { location }).end(),
    })
    await t.rejects(pullModel('hf:org/m'), { code: 'ERR_IO', message })
  }
  const { hub } = await serveHub(t, repositories, {
    answer({ url }, response) {
      const isOld = url!.startsWith('/api/models/old/m')
      if (isOld) response.writeHead(307, { location: url!.replace('old/m', 'org/m') }).end()
      return isOld
    },
  })
  await t.rejects(pullModel('hf:old/m'), { code: 'ERR_IO', message: /old\/m\/resolve.*404/ })
  t.ok(
    hub.seen.some(({ url }) => url === '/api/models/org/m/revision/main'),
    'one on the same server is followed',
  )
})

t.test('servers that are busy, or have nothing', async t => {
  const { hub } = await serveHub(t, repositories, {
    answer({ url }, response, attempt) {
      const isBusy = attempt === 0 && url!.includes('/revision/')
      if (isBusy) response.writeHead(429, { ratelimit: '"api";r=0;t=0' }).end()
      return isBusy
    },
  })
  await pullModel('hf:org/m')
  t.equal(hub.seen.filter(({ url }) => url.includes('/revision/')).length, 2)
  await t.rejects(pullModel('hf:org/none'), { code: 'ERR_IO', message: /404 Not Found/ })
  await t.rejects(pullModel('hf:org/m@none'), { code: 'ERR_IO', message: /revision\/none.*404/ })
  const wait = (headers: Record<string, string>) => askedWait(new Headers(headers), Date.UTC(2026, 0, 1))
  t.equal(wait({ 'retry-after': '7' }), 7000)
  t.equal(wait({ 'retry-after': 'Thu, 01 Jan 2026 00:01:00 GMT' }), 60_000)
  t.equal(wait({ ratelimit: '"api";r=3;t=9, "resolvers";r=0;t=45' }), 45_000)
  t.equal(wait({ ratelimit: '"api";r=3;t=9' }), 0)
  t.equal(wait({ 'retry-after': 'soon' }), 0)
})

t.test('two processes pull once', async t => {
  const { hub, cdn, home } = await serveHub(t, repositories, {
    cdnAnswer(request, response) {
      setTimeout(() => sendFile(request, response, gguf), 500)
      return true
    },
  })
  const program = `import { pullModel } from 'dgx-spark'
    console.log((await pullModel('hf:org/m')).downloadedBytes)`
  const run = async (): Promise<string> => {
    const env = { ...process.env, HF_HOME: home, HF_ENDPOINT: hub.base }
    const child = spawn(process.execPath, ['--input-type=module', '-e', program], { env })
    let output = ''
    child.stdout.on('data', text => {
      output += text
    })
    await once(child, 'close')
    return output.trim()
  }
  t.strictSame((await Promise.all([run(), run()])).sort(), ['0', String(gguf.length)])
  t.equal(cdn.seen.length, 1)
  t.strictSame(readdirSync(path.join(home, 'hub/.locks/models--org--m')), [])
  t.ok(readFileSync(path.join(home, 'hub/models--org--m/snapshots', commit, 'm-Q4_K_M.gguf')).equals(gguf))
})

t.test('arguments', async t => {
  for (const [uri, options] of [
    ['m', {}],
    ['', {}],
    ['hf:org/m', { offline: 1 }],
    ['hf:org/m', { revision: '' }],
    ['hf:org/m', { revision: '../x' }],
    ['hf:org/m@a', { revision: 'b' }],
    ['hf:org/m', { ofline: true }],
    ['hf:org/m', { signal: {} }],
    ['ollama:m', { revision: 'main' }],
  ] as const)
    await t.rejects(
      pullModel(uri, options as object),
      { code: 'ERR_ARGUMENT' },
      `${uri} ${JSON.stringify(options)}`,
    )
})
