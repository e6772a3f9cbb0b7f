// Runs one statement with parameters, both given as JSON, on DATABASE_URL, and prints the rows or the error's SQLSTATE as JSON.
const { Client } = require('pg')

async function main() {
  const { sql, parameters } = JSON.parse(process.argv[2])
  const client = new Client({ connectionString: process.env.DATABASE_URL })
  await client.connect()
  try {
    const { rows } = await client.query({ text: sql, values: parameters, rowMode: 'array' })
    return { rows: rows.map((row) => row.map(String)) }
  } catch (err) {
    if (!err.code) throw err
    return { code: err.code, message: err.message }
  } finally {
    await client.end()
  }
}

main().then((out) => console.log(JSON.stringify(out)))
