// mpi-agent.ts: a program that mpirun runs in place of ssh: hands the command for another host to the process that launched
// the ranks, by a socket in a folder of that user, and ends when the command has started there.
import { connect } from 'node:net'

const [host = '', ...words] = process.argv.slice(2)
const socket = connect(process.env.DGX_SPARK_MPI_SOCKET ?? '')
let answer = ''
socket.setEncoding('utf8')
socket.on('data', text => {
  answer += text
})
socket.on('error', () => {
  process.exitCode = 1
})
socket.on('close', () => {
  process.exitCode = answer === 'started' ? 0 : 1
})
socket.end(JSON.stringify({ host, words }))
