#!/usr/bin/env node
// build.cjs: runs CMake. Four callers: npm run build, binding.gyp's one action, prebuildify (as its node-gyp, so that a
// prebuild needs neither Python nor Node's headers), and a user who builds from source inside node_modules.
'use strict'
const { execFileSync } = require('node:child_process')
const { existsSync } = require('node:fs')
const { availableParallelism } = require('node:os')
const path = require('node:path')

const root = path.join(__dirname, '..')
const option = name => process.argv.find(arg => arg.startsWith(`--${name}=`))?.slice(name.length + 3)
const config = process.argv.includes('--debug') || option('config') === 'Debug' ? 'Debug' : 'Release'
const arch = option('arch') ?? process.arch
// Prebuilds for this machine reuse the objects of npm run build; other architectures have folders of their own.
const ordinary = arch === process.arch && config === 'Release'
const out = path.join(root, 'build', ordinary ? 'cmake' : `cmake-${arch}-${config.toLowerCase()}`)

const cmake = (...args) => execFileSync('cmake', args, { cwd: root, stdio: 'inherit' })

function hasNinja() {
  try {
    execFileSync('ninja', ['--version'], { stdio: 'ignore' })
    return true
  } catch {
    return false
  }
}

const { DGX_SPARK_CUDA_ARCHS: archs = '', DGX_SPARK_FATBINS: fatbins = '' } = process.env
const fresh = !existsSync(path.join(out, 'CMakeCache.txt'))
cmake(
  '-S',
  root,
  '-B',
  out,
  `-DCMAKE_BUILD_TYPE=${config}`,
  // Always, so that the cache keeps nothing of the build before.
  `-DDGX_SPARK_CUDA_ARCHS=${archs}`,
  `-DDGX_SPARK_FATBINS=${fatbins && path.resolve(root, fatbins)}`,
  ...(fresh && hasNinja() ? ['-G', 'Ninja'] : []),
  ...(fresh && arch !== process.arch ? [`-DCMAKE_TOOLCHAIN_FILE=${root}/native/linux-${arch}.cmake`] : []),
)
// A bare --parallel lets make start all compilers at once, more than memory holds.
cmake('--build', out, '--config', config, '--parallel', `${availableParallelism()}`)
