// Downloads against a server that fails: ranges, resumption, retries, hashes, redirects, tokens, proxies, several processes.
import { spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { type AddressInfo, connect } from 'node:net'
import path from 'node:path'
import { downloadFile } from 'dgx-spark'
import t, { type Test } from 'tap'
import { type Answer, type FileServer, sendFile, serve } from '../fixtures/hub/server.js'

const bytes = Buffer.from(Array.from({ length: 300_000 }, (_, i) => (i * 7) % 251))
const sha256 = createHash('sha256').update(bytes).digest('hex')

async function setup(t: Test, answer: Answer): Promise<FileServer & { file: string; folder: string }> {
  const server = await serve(answer)
  t.teardown(() => server.close())
  const folder = t.testdir({})
  return { ...server, folder, file: path.join(folder, 'inner', 'file.bin') }
}

t.test('a file, once', async t => {
  const { base, file, seen } = await setup(t, (request, response) => sendFile(request, response, bytes))
  const progress: number[] = []
  const options = {
    sha256,
    onProgress: (at: { bytes: number; total: number | null }) => {
      t.equal(at.total, bytes.length)
      progress.push(at.bytes)
    },
  }
  t.equal(await downloadFile(`${base}/file?secret=1`, file, options), true)
  t.ok(readFileSync(file).equals(bytes))
  t.equal(progress.at(-1), bytes.length)
  t.strictSame(readdirSync(path.dirname(file)), ['file.bin'], 'nothing is left beside it')
  t.equal(await downloadFile(`${base}/file`, file, options), false, 'it is there')
  t.equal(seen.length, 1)
})

t.test('a connection that is cut goes on where it was', async t => {
  const { base, file, seen } = await setup(t, (request, response) =>
    sendFile(request, response, bytes, { cut: 90_000 }),
  )
  t.equal(await downloadFile(base, file, { sha256, attempts: 2 }), true)
  t.ok(readFileSync(file).equals(bytes))
  t.strictSame(
    seen.map(({ range }) => range),
    [undefined, 'bytes=90000-', 'bytes=180000-', 'bytes=270000-'],
    'attempts are counted anew after progress',
  )
})

t.test('a later call goes on, and one that finds another file begins anew', async t => {
  let etag = '"1"'
  let cut = 100_000
  const { base, file, seen } = await setup(t, (request, response) =>
    sendFile(request, response, bytes, { etag, cut }),
  )
  const abort = new AbortController()
  const interrupted = downloadFile(base, file, {
    signal: abort.signal,
    onProgress: ({ bytes }) => bytes === 100_000 && abort.abort(new Error('enough')),
  })
  await t.rejects(interrupted, { message: 'enough' })
  t.ok(existsSync(`${file}.part`))
  cut = Number.POSITIVE_INFINITY
  t.equal(await downloadFile(base, file, { sha256 }), true)
  t.equal(seen.at(-1)?.range, 'bytes=100000-')

  writeFileSync(`${file}2.part`, Buffer.alloc(1000, 1))
  writeFileSync(`${file}2.part.json`, JSON.stringify({ url: `${base}/`, version: '"1"' }))
  etag = '"2"'
  t.equal(await downloadFile(`${base}/`, `${file}2`, { sha256 }), true, 'of another version')
  writeFileSync(`${file}3.part`, bytes)
  writeFileSync(`${file}3.part.json`, JSON.stringify({ url: `${base}/`, version: '"2"' }))
  t.equal(await downloadFile(`${base}/`, `${file}3`, { sha256 }), true, 'complete, but without its name')
  writeFileSync(`${file}4.part`, Buffer.alloc(10))
  writeFileSync(`${file}4.part.json`, 'damaged')
  t.equal(await downloadFile(`${base}/`, `${file}4`, { sha256 }), true, 'of nobody knows what')
})

t.test('a server that ignores ranges', async t => {
  const { base, file, seen } = await setup(t, (request, response, attempt) =>
    sendFile(request, response, bytes, { ranges: false, ...(attempt === 0 && { cut: 5000 }) }),
  )
  t.equal(await downloadFile(base, file, { sha256 }), true)
  t.strictSame(
    seen.map(({ range }) => range),
    [undefined, 'bytes=5000-'],
  )
})

t.test('busy servers are asked again, others are not', async t => {
  const { base, file, seen } = await setup(t, (request, response, attempt) => {
    const [, status] = /(\d{3})/.exec(request.url ?? '') ?? []
    if (attempt < 2) response.writeHead(Number(status), { 'retry-after': '0' }).end()
    else sendFile(request, response, bytes)
  })
  t.equal(await downloadFile(`${base}/503`, file, { sha256 }), true)
  t.equal(seen.length, 3)
  await t.rejects(downloadFile(`${base}/500`, `${file}2`, { attempts: 1 }), {
    code: 'ERR_IO',
    message: /127\.0\.0\.1:\d+\/500: the server answered 500 Internal Server Error$/,
  })
  for (const [status, message] of [
    [404, /answered 404 Not Found$/],
    [401, /answered 401 Unauthorized: set DGX_SPARK_TOKENS=127\.0\.0\.1:\d+=<token>$/],
  ] as const) {
    const before = seen.length
    await t.rejects(downloadFile(`${base}/${status}`, `${file}3`), { code: 'ERR_IO', message })
    t.equal(seen.length, before + 1, `${status} once`)
  }
  await t.rejects(downloadFile('http://127.0.0.1:1/', `${file}4`, { attempts: 1 }), { code: 'ERR_IO' })
})

t.test('a wrong hash', async t => {
  const { base, file } = await setup(t, (request, response) => sendFile(request, response, bytes))
  await t.rejects(downloadFile(base, file, { sha256: 'f'.repeat(64) }), {
    code: 'ERR_FORMAT',
    message: new RegExp(`has SHA-256 ${sha256}, expected f{64}: it was removed`),
  })
  t.strictSame(readdirSync(path.dirname(file)), [], 'nothing stays')
})

t.test('redirects, and tokens that no other host gets', async t => {
  const other = await setup(t, (request, response) => sendFile(request, response, bytes))
  const { base, host, seen, file } = await setup(t, (request, response) => {
    if (request.url === '/loop') response.writeHead(302, { location: '/loop' }).end()
    else if (request.url === '/away') response.writeHead(307, { location: `${other.base}/file` }).end()
    else if (request.url === '/ftp') response.writeHead(302, { location: 'ftp://x/y' }).end()
    else response.writeHead(302, { location: '/away' }).end()
  })
  process.env.DGX_SPARK_TOKENS = `example.org=abc, ${host}=top=secret`
  t.teardown(() => delete process.env.DGX_SPARK_TOKENS)
  t.equal(await downloadFile(`${base}/start`, file, { sha256 }), true)
  t.strictSame(
    seen.map(({ authorization }) => authorization),
    ['Bearer top=secret', 'Bearer top=secret'],
  )
  t.equal(other.seen[0]?.authorization, undefined)
  await t.rejects(downloadFile(`${base}/loop`, `${file}2`), { message: /other addresses more than 10 times/ })
  await t.rejects(downloadFile(`${base}/ftp`, `${file}2`), { message: /no address that can be read/ })
})

t.test('a proxy', async t => {
  const { base, file, host } = await setup(t, (request, response) => sendFile(request, response, bytes))
  const tunnels: string[] = []
  const proxy = createServer().listen(0, '127.0.0.1')
  proxy.on('connect', (request, socket) => {
    tunnels.push(request.url ?? '')
    const [name = '', port] = (request.url ?? '').split(':')
    const target = connect(Number(port), name, () => {
      socket.write('HTTP/1.1 200 OK\r\n\r\n')
      target.pipe(socket).pipe(target)
    })
  })
  await once(proxy, 'listening')
  t.teardown(() => proxy.close())
  process.env.HTTP_PROXY = `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`
  t.teardown(() => {
    delete process.env.HTTP_PROXY
    delete process.env.NO_PROXY
  })
  t.equal(await downloadFile(base, file, { sha256 }), true)
  t.strictSame(tunnels, [host])
  for (const none of ['*', '127.0.0.1', `x.org, ${host}`]) {
    process.env.NO_PROXY = none
    t.equal(await downloadFile(base, `${file}${none.length}`), true)
  }
  t.equal(tunnels.length, 1, 'NO_PROXY')
})

t.test('two processes download once', async t => {
  const { base, file, seen } = await setup(t, (request, response) =>
    setTimeout(() => sendFile(request, response, bytes), 300),
  )
  const program = `import { downloadFile } from 'dgx-spark'
    console.log(await downloadFile(${JSON.stringify(base)}, ${JSON.stringify(file)}))`
  const run = async (): Promise<string> => {
    const child = spawn(process.execPath, ['--input-type=module', '-e', program])
    let output = ''
    child.stdout.on('data', text => {
      output += text
    })
    await once(child, 'close')
    return output.trim()
  }
  t.strictSame((await Promise.all([run(), run()])).sort(), ['false', 'true'])
  t.equal(seen.length, 1)
})

t.test('a disk that is full', { skip: process.platform === 'win32' && 'needs ulimit' }, async t => {
  const { base, file } = await setup(t, (request, response) => sendFile(request, response, bytes))
  const program = `import { downloadFile } from 'dgx-spark'
    process.on('SIGXFSZ', () => {}) // otherwise the write beyond the limit kills the process
    await downloadFile(${JSON.stringify(base)}, ${JSON.stringify(file)}).catch(error => console.log(error.message))`
  const child = spawn('sh', [
    '-c',
    `ulimit -f 64; exec "$0" --input-type=module -e "$1"`,
    process.execPath,
    program,
  ])
  let output = ''
  child.stdout.on('data', text => {
    output += text
  })
  await once(child, 'close')
  t.match(output, /could not write .*file\.bin\.part: the file is larger than this process may write/)
  t.ok(existsSync(`${file}.part`), 'what has arrived stays')
})

t.test('arguments', async t => {
  for (const [url, file, options] of [
    ['ftp://x/y', 'f', {}],
    ['nonsense', 'f', {}],
    ['http://x/y', '', {}],
    ['http://x/y', 'f', { sha256: 'abc' }],
    ['http://x/y', 'f', { attempts: 0 }],
    ['http://x/y', 'f', { hash: '' }],
  ] as const)
    await t.rejects(downloadFile(url, file, options as object), { code: 'ERR_ARGUMENT' })
})
