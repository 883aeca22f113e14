# One request of CGI: in the environment and on standard input.

require "erb"
require "json"
require "uri"

PAGE = ERB.new(<<~HTML)
  <!DOCTYPE html>
  <html lang="en">
  <meta charset="utf-8">
  <title><%= ERB::Util.html_escape(title) %></title>
  <h1><%= ERB::Util.html_escape(title) %></h1>
  <p><%= ERB::Util.html_escape(text) %></p>
  </html>
HTML

# What one request leaves here the next does not find.
$calls = 0

def page(title, text) = ["text/html; charset=utf-8", PAGE.result_with_hash(title: title, text: text)]

def json(value) = ["application/json", JSON.generate(value) + "\n"]

def visits
  $calls += 1
  File.write("/site/visits", "x", mode: "a")
  json(global: $calls, file: File.size("/site/visits"))
end

def about
  json(
    ruby: RUBY_VERSION,
    path: ENV["PATH_INFO"],
    query: URI.decode_www_form(ENV["QUERY_STRING"]).to_h,
    script: ENV["SCRIPT_NAME"],
    client: ENV["REMOTE_ADDR"]
  )
end

# What failing looks like.
def failing(how)
  case how
  when "exception" then raise "nobody catches this"
  when "exit" then exit!(3)
  when "endless" then loop {}
  when "memory"
    all = []
    loop { all << "x" * (1 << 20) }
  end
end

def form = URI.decode_www_form($stdin.read).to_h

def answer(method, path)
  case [method, path]
  in ["GET" | "HEAD", "/"] then page("A site in Ruby", "each request runs Ruby in a microVM of its own")
  in ["POST", "/greet"] then page("Hello", "hello, #{form["name"]}")
  in ["POST", "/json"] then json(got: JSON.parse($stdin.read))
  in ["GET" | "HEAD", "/visits"] then visits
  in ["GET" | "HEAD", "/about"] then about
  in ["GET", %r{\A/fail/(\w+)\z}] then failing($1) || [404, *json(error: "no way to fail is called #{$1}")]
  else [404, *json(error: "nothing is at #{path}")]
  end
end

# With --freeze-at what stands before is done once, and this has the environment of the request; it is empty without.
File.binread("/site/request").split("\0").each { |pair| ENV.store(*pair.split("=", 2)) }

begin
  *status, type, body = answer(ENV["REQUEST_METHOD"], ENV["PATH_INFO"])
rescue StandardError => error
  warn error.full_message(highlight: false)
  status, (type, body) = [500], page("Something went wrong", "and the log says what")
end
print "Status: #{status.first || 200}\r\nContent-Type: #{type}\r\n\r\n", body
