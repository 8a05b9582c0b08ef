// The systemd unit of a node: what is written, what is not touched, and whether systemd takes it.
import { spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import t from 'tap'
import { installService, removeService, serviceUnit } from '#lib/cluster/service.js'

const hasAnalyze = spawnSync('systemd-analyze', ['--version']).status === 0

// A service of the user makes its folders.
process.env.HOME = path.join(t.testdirName, '..', 'service-home')
process.env.XDG_DATA_HOME = path.join(process.env.HOME, 'data')
t.teardown(() => rmSync(process.env.HOME!, { recursive: true, force: true }))

t.test('install, again, remove', async t => {
  const folder = path.join(t.testdir(), 'units')
  const places = { systemd: t.testdirName, folder }
  for (const scope of ['system', 'user'] as const) {
    const service = await installService(scope, places)
    t.equal(readFileSync(service.file, 'utf8'), service.text)
    t.same(serviceUnit(scope, places), service)
    t.match(service.next, [/daemon-reload$/, /enable --now dgx-spark$/])
    await installService(scope, places)
    const writable = [...service.text.matchAll(/^ReadWritePaths="-(.+)"$/gm)].map(([, folder]) => folder!)
    t.equal(writable.length, scope === 'user' ? 2 : 0)
    for (const each of writable) t.ok(existsSync(each), each)
    const target = scope === 'system' ? 'multi-user.target' : 'default.target'
    const link = path.join(folder, `${target}.wants`, 'dgx-spark.service')
    mkdirSync(path.dirname(link), { recursive: true })
    symlinkSync(service.file, link)
    t.match(await removeService(scope, places), {
      removed: true,
      next: [/stop dgx-spark$/, /daemon-reload$/],
    })
    t.notOk(existsSync(service.file))
    t.throws(() => readFileSync(link), { code: 'ENOENT' })
    t.match(await removeService(scope, places), { removed: false, next: [] })
  }
})

t.test('a file of somebody else stays', async t => {
  const folder = t.testdir()
  const places = { systemd: folder, folder }
  const file = path.join(folder, 'dgx-spark.service')
  writeFileSync(file, '[Service]\nExecStart=/bin/true\n')
  const refusal = { code: 'ERR_BUSY', message: /dgx-spark\.service was not written by this command/ }
  await t.rejects(installService('system', places), refusal)
  await t.rejects(removeService('system', places), refusal)
  t.match(readFileSync(file, 'utf8'), '/bin/true')
})

t.test('a system without systemd is told so', async t => {
  const places = { systemd: path.join(t.testdir(), 'none'), folder: t.testdirName }
  const refusal = { code: 'ERR_UNSUPPORTED', message: /systemd does not run on this system/ }
  await t.rejects(installService('user', places), refusal)
  await t.rejects(removeService('user', places), refusal)
  t.throws(() => serviceUnit('group' as never), { code: 'ERR_ARGUMENT' })
})

t.test('few rights, and what V8 and GPUs need', async t => {
  const system = serviceUnit('system').text
  for (const line of [
    'NoNewPrivileges=yes',
    'ProtectSystem=strict',
    'PrivateTmp=yes',
    'DynamicUser=yes',
    'DevicePolicy=closed',
    'DeviceAllow=char-nvidia* rw',
    'CapabilityBoundingSet=',
    'Restart=on-failure',
  ])
    t.ok(system.split('\n').includes(line), line)
  for (const { text } of [serviceUnit('system'), serviceUnit('user')])
    t.notMatch(text, /MemoryDenyWriteExecute/)
  const home = process.env.DGX_SPARK_CLUSTER_HOME
  t.match(serviceUnit('user').text, /^ReadWritePaths="-\//m)
  t.equal(process.env.DGX_SPARK_CLUSTER_HOME, home)
})

t.test('systemd takes it', { skip: !hasAnalyze && 'no systemd-analyze here' }, async t => {
  const folder = t.testdir()
  for (const scope of ['system', 'user'] as const) {
    const { file } = await installService(scope, { systemd: folder, folder })
    const { status, stderr } = spawnSync('systemd-analyze', [`--${scope}`, 'verify', file], {
      encoding: 'utf8',
      env: { ...process.env, XDG_RUNTIME_DIR: folder },
    })
    const said = stderr.split('\n').filter(line => line.includes('dgx-spark'))
    t.same(said, [], `${scope}: ${stderr}`)
    t.comment(`${scope}: systemd-analyze verify ended with ${status}`)
  }
})
