//! `image`: the images of functions' seeds on disk.

use std::{
    fmt::Write as _,
    hash::{BuildHasher as _, RandomState},
    io,
    os::unix::net::UnixStream as Blocking,
    path::{Path, PathBuf},
    process, thread,
};

use faasw_client::{
    Client, ClientError, FunctionName, ImageInfo, ImageWorkingSet, ImportOutcome, SetReuse,
};
use faasw_common::text::Line;
use tokio::{fs, io::AsyncRead, net::UnixStream};

use super::{
    args::{Image, ImageExport, ImageImport, Inspect},
    exit::Exit,
    output::{self, duration, print, print_json, say, size, with_progress},
};

/// The size of a page in bytes.
const PAGE: u64 = 4096;

/// Runs a command about images.
pub async fn image(command: Image) -> Result<(), Exit> {
    match command {
        Image::Inspect(args) => inspect(args).await,
        Image::Export(args) => export(args).await,
        Image::Import(args) => import(args).await,
    }
}

async fn inspect(args: Inspect) -> Result<(), Exit> {
    let client = args.node.client()?;
    let image = client.image(&args.name).await?;
    if args.format.json {
        return print_json(&image);
    }
    print(format!("{}\n{}", args.name, text(&image)))
}

async fn export(args: ImageExport) -> Result<(), Exit> {
    let client = args.node.client()?;
    let (name, file) = (&args.name, &args.output);
    let bytes = with_progress(name, write_atomically(&client, name, file))
        .await
        .map_err(|error| match error {
            ClientError::File(error) => Exit::unwritable(file, error),
            error => Exit::from(error).of(name, "was not exported"),
        })?;
    let size = size(bytes);
    say(format_args!("{name}: {size} written to {}", file.display()));
    Ok(())
}

/// Writes an export to a private file while it arrives. The complete file then replaces the one at
/// `path`; after a failure, `path` is unchanged. Returns the size in bytes.
async fn write_atomically(
    client: &Client,
    name: &FunctionName,
    path: &Path,
) -> Result<u64, ClientError> {
    // If no node answers, that is the error to report, whatever the state of the file.
    client.node().await?;
    let unfinished = temporary_path(path);
    // The unfinished file must be a new one. So nothing is written to a file that has its name
    // already, nor to the target of a link, and no other file is removed after a failure.
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&unfinished)
        .await?;
    let written = async {
        let bytes = client.export(name, &mut file).await?;
        file.sync_all().await?;
        fs::rename(&unfinished, path).await?;
        Ok::<_, ClientError>(bytes)
    };
    let written = written.await;
    if written.is_err() {
        let _ = fs::remove_file(&unfinished).await;
    }
    written
}

/// Returns a name beside the file that no other export uses.
fn temporary_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    let (process, random) = (process::id(), RandomState::new().hash_one(()));
    name.push(format!(".unfinished-{process}-{random:016x}"));
    name.into()
}

async fn import(args: ImageImport) -> Result<(), Exit> {
    let client = args.node.client()?;
    let file = args.file.display();
    let (export, bytes) = open(&args.file)
        .await
        .map_err(|error| Exit::unreadable(&args.file, error))?;
    match bytes {
        Some(bytes) => say(format_args!("{file}: importing {}…", size(bytes))),
        None => say(format_args!("{file}: importing…")),
    }
    let importing = client.import(export, bytes, args.name.as_ref());
    let imported = with_progress(&file, importing)
        .await
        .map_err(|error| match error {
            ClientError::File(error) => Exit::unreadable(&args.file, error),
            error => error.into(),
        })?;
    if args.format.json {
        return print_json(&imported);
    }
    print(format!("{}\n", describe_import(&imported)))
}

/// Opens a file to import. Returns its size in bytes as well, if it is a regular file.
async fn open(
    path: &Path,
) -> io::Result<(Box<dyn AsyncRead + Send + Unpin + 'static>, Option<u64>)> {
    let file = fs::File::open(path).await?;
    let about = file.metadata().await?;
    if about.is_file() {
        return Ok((Box::new(file), Some(about.len())));
    }
    if about.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    // The writer of a pipe may pause for ever, and the runtime would not end before a read of its
    // own. So a thread reads, which ends with the program. If reading fails, the stream just ends.
    let (mut to, from) = Blocking::pair()?;
    let mut file = file.into_std().await;
    thread::Builder::new().spawn(move || io::copy(&mut file, &mut to))?;
    from.set_nonblocking(true)?;
    Ok((Box::new(UnixStream::from_std(from)?), None))
}

/// Describes an import and the origin of its seed.
fn describe_import(imported: &ImportOutcome) -> String {
    let deployed = &imported.deployed;
    let (name, version) = (&deployed.function.name, deployed.function.version);
    match &imported.rebuilt {
        None => format!(
            "{name}: version {version}, seed read from the func-image in {}; nothing was \
             initialised",
            duration(deployed.seed_time)
        ),
        Some(why) => format!(
            "{}\n{name}: note: deployed from the exported module; the func-image was not used: {}",
            output::deployed(deployed),
            Line(why)
        ),
    }
}

fn text(image: &ImageInfo) -> String {
    let mut text = String::new();
    let mut line = |what: &str, value: String| {
        // Writing to a string does not fail.
        let _ = writeln!(text, "  {what:12} {value}");
    };
    let (file, header) = (size(image.file_bytes), size(image.header_bytes));
    let (format, chunks, each) = (image.format, image.chunks, size(image.chunk_bytes));
    line(
        "file",
        format!("{file}, of which {header} header; format {format}, {chunks} chunks of {each}"),
    );
    let dump = size(image.dump_bytes);
    let ratio = ratio(image.dump_bytes, image.file_bytes, "as much");
    line(
        "dump",
        format!("{dump} would be a plain dump of its memory: {ratio}"),
    );
    line("content", image.content.clone());
    let parent = image.parent.clone();
    line("over", parent.unwrap_or_else(|| "nothing".into()));
    let pages = &image.pages;
    line(
        "pages",
        format!(
            "{} own: {} in the file, {} empty, {} equal to the parent's",
            pages.own, pages.stored, pages.zero, pages.inherited
        ),
    );
    match &image.working_set {
        Some(set) => working_set(set, pages.stored, &mut line),
        None => line(
            "working set",
            "unknown until requests have run; then the func-image is written again".into(),
        ),
    }
    if let Some(reuse) = &image.reuse {
        line("reuse", describe_reuse(reuse));
    }
    line(
        "seals",
        match &image.damage {
            None => "intact".into(),
            Some(damage) => format!("DAMAGED: {}", Line(damage)),
        },
    );
    if let Some(unfit) = &image.unfit {
        line(
            "not used",
            format!(
                "{}; the seed is made again when it is next needed",
                Line(unfit)
            ),
        );
    }
    text
}

fn working_set(set: &ImageWorkingSet, stored: u64, line: &mut impl FnMut(&str, String)) {
    let ImageWorkingSet {
        used,
        written,
        changed,
        read,
        stored: useful,
        zero,
        ancestors,
        runs,
        longest_run,
        ..
    } = *set;
    let bytes = size(used * PAGE);
    line(
        "working set",
        format!(
            "{used} pages, {bytes}: {written} written, of which {changed} changed, {read} read"
        ),
    );
    line(
        "",
        format!("{useful} in the file, {zero} empty, {ancestors} its ancestors'"),
    );
    let mean = used as f64 / runs.max(1) as f64;
    line(
        "runs",
        format!(
            "{runs} in memory, of {mean:.1} pages each, {longest_run} the longest; in the file one"
        ),
    );
    let ratio = ratio(stored, useful, "as many");
    line(
        "restore",
        format!("reads {stored} pages of which requests use {useful}: {ratio}"),
    );
}

/// Returns how many times larger one number is than the other.
fn ratio(one: u64, other: u64, what: &str) -> String {
    match other {
        0 => format!("none is {what}"),
        _ => format!("{:.2} times {what}", one as f64 / other as f64),
    }
}

/// Describes how requests used the working set, on average.
fn describe_reuse(reuse: &SetReuse) -> String {
    let mean = |pages: u64, requests: u64| pages as f64 / requests.max(1) as f64;
    let outside = format!(
        "{} requests wrote {:.1} pages outside of it each",
        reuse.requests,
        mean(reuse.outside, reuse.requests)
    );
    match reuse.compared {
        0 => outside,
        compared => format!(
            "{outside}; {compared} sampled ones wrote {:.1} pages inside of it",
            mean(reuse.inside, compared)
        ),
    }
}

#[cfg(test)]
mod tests {
    use faasw_client::ImagePages;

    use super::*;

    fn image() -> ImageInfo {
        ImageInfo {
            format: 1,
            content: "c0".repeat(32),
            parent: Some("d1".repeat(32)),
            file_bytes: 2 << 20,
            header_bytes: 8 << 10,
            chunks: 32,
            chunk_bytes: 64 << 10,
            dump_bytes: 140 << 20,
            pages: ImagePages {
                own: 900,
                stored: 510,
                zero: 300,
                inherited: 90,
            },
            working_set: Some(ImageWorkingSet {
                written: 60,
                changed: 40,
                read: 300,
                used: 360,
                runs: 36,
                longest_run: 70,
                stored: 255,
                zero: 5,
                ancestors: 100,
            }),
            reuse: None,
            damage: None,
            unfit: None,
        }
    }

    #[test]
    fn text_lists_the_properties_of_an_image() {
        let text = text(&image());
        for part in [
            "2.0 MiB, of which 8 KiB header; format 1, 32 chunks of 64 KiB",
            "70.00 times as much",
            "900 own: 510 in the file, 300 empty, 90 equal to the parent's",
            "360 pages, 1.4 MiB: 60 written, of which 40 changed, 300 read",
            "255 in the file, 5 empty, 100 its ancestors'",
            "36 in memory, of 10.0 pages each, 70 the longest",
            "reads 510 pages of which requests use 255: 2.00 times as many",
            "intact",
        ] {
            assert!(text.contains(part), "no {part:?} in {text}");
        }
        assert!(
            !text.contains("not used") && !text.contains("reuse"),
            "{text}"
        );
    }

    #[test]
    fn text_reports_damage_and_unknown_values() {
        let reuse = SetReuse {
            requests: 10,
            outside: 25,
            compared: 0,
            inside: 0,
        };
        let told = text(&ImageInfo {
            working_set: None,
            reuse: Some(reuse),
            damage: Some("chunk 3 of an image is damaged".into()),
            unfit: Some("an image was made over another parent".into()),
            ..image()
        });
        for part in [
            "unknown until requests have run",
            "10 requests wrote 2.5 pages outside of it each\n",
            "DAMAGED: chunk 3",
            "not used     an image was made over another parent",
        ] {
            assert!(told.contains(part), "no {part:?} in {told}");
        }
        let compared = SetReuse {
            compared: 2,
            inside: 61,
            ..reuse
        };
        assert!(
            super::describe_reuse(&compared)
                .ends_with("2 sampled ones wrote 30.5 pages inside of it")
        );
    }
}
